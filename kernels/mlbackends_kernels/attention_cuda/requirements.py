"""What a machine lacks to compile and launch attention.cu, as far as files tell: nothing is imported."""

from functools import cache

from mlbackends.host.host import Host
from mlbackends.host.python.packages import module_location
from mlbackends.libraries.cuda.driver import driver_libraries
from mlbackends.model import registry
from mlbackends.model.reasons import Reason

_INSTALL = "pip install 'mlbackends[cuda]' nvidia-cuda-nvrtc"


@cache
def missing_parts(host: Host | None = None) -> tuple[Reason, ...]:
    """Return a reason for each of the binding, NVRTC and the driver that is not there."""
    host = host or Host()
    reasons = []
    if not module_location(host, "cuda/core"):
        reasons.append(("it launches by cuda.core, which is not installed", _INSTALL))
    if not any(
        each.wins for each in registry.load("mlbackends_probes", "nvrtc").find(host).libraries
    ):
        reasons.append(("it compiles by NVRTC (libnvrtc.so), which is not there", _INSTALL))
    if not any(each.wins for each in driver_libraries(host, "cuda_driver", "libcuda")):
        reasons.append(("there is no CUDA driver library (libcuda.so.1)", ""))
    return tuple(Reason("missing-part", message, hint) for message, hint in reasons)

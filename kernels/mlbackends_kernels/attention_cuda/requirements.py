"""What a machine lacks to compile and launch our kernels, as far as files tell: nothing is imported."""

from functools import cache

from mlbackends.base import registry
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.python.packages import module_location
from mlbackends.libraries.cuda.driver import driver_for, driver_libraries, too_old_for

_INSTALL = "pip install 'mlbackends[cuda]' nvidia-cuda-nvrtc"
_INSTALL_ALL = "pip install 'mlbackends[cuda]' 'nvmath-python[cu13]'"
_PROBES = {"cublasLt": "cublas"}


@cache
def missing_parts(
    host: Host | None = None,
    binding: str = "",
    libraries: tuple[str, ...] = ("nvrtc",),
    built_for: str = "",
) -> tuple[Reason, ...]:
    """Return a reason for each of the bindings, the libraries and the driver that is not there.

    binding: a package that is needed beside cuda.core. libraries: by the names of their records.
    built_for: the release of CUDA of machine code that is there, which the driver must run.
    """
    host, install = host or Host(), _INSTALL_ALL if binding else _INSTALL
    reasons = []
    if not module_location(host, "cuda/core"):
        reasons.append(("it launches by cuda.core, which is not installed", install))
    if binding and not module_location(host, binding):
        reasons.append((f"it computes by {binding}, which is not installed", install))
    for name in libraries:
        probe = registry.load("mlbackends_probes", _PROBES.get(name, name))
        if not any(each.wins and each.name == name for each in probe.find(host).libraries):
            purpose = "compiles by NVRTC" if name == "nvrtc" else "multiplies matrices by"
            file = f"(lib{name}.so)" if name == "nvrtc" else f"lib{name}.so"
            reasons.append((f"it {purpose} {file}, which is not there", install))
    drivers = [each for each in driver_libraries(host, "cuda_driver", "libcuda") if each.wins]
    release = str(drivers[0].facts.get("driver_release", "")) if drivers else ""
    if not drivers:
        reasons.append(("there is no CUDA driver library (libcuda.so.1)", ""))
    elif too_old_for(release, built_for):
        needed = (
            f"its machine code is of CUDA {built_for}, which needs driver {driver_for(built_for)}"
        )
        reasons.append((f"{needed} or newer; this one is {release}", ""))
    return tuple(Reason("missing-part", message, hint) for message, hint in reasons)

"""CuPy: NumPy's interface on NVIDIA and AMD GPUs.

Finds:    every flavour of the distribution, its version, and the CUDA of its wheel.
Caveats:  all flavours install the same module: the last one wins.
Source:   CuPy documentation, "Installation", "Environment variables".
"""

from mlbackends.base.patterns import pattern
from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import found, package
from mlbackends.libraries.cuda.driver import driver_release, driver_warning
from mlbackends.model.records import Finding

GROUP = "framework"

_CUDA = pattern(r"cupy-cuda(\d{2})(\d|x)")
_ROCM = pattern(r"cupy-rocm-(\d+)-(\d+|x)")


def find(host: Host) -> Finding:
    """Read the package's metadata and files."""
    cupy = package(host, ("cupy", "cupy-cuda*", "cupy-rocm*"), "cupy", "_version.py")
    name, facts = cupy.name if cupy else "", {}
    warning = None
    if cupy and (match := _CUDA.fullmatch(name)):
        facts["cuda_version"] = f"{match[1]}.{match[2]}"
        least = f"{match[1]}.{match[2] if match[2] != 'x' else 0}"
        warning = driver_warning(driver_release(host), least, f"{name} {cupy.version}")
    elif cupy and (match := _ROCM.fullmatch(name)):
        facts["rocm_version"] = f"{match[1]}.{match[2]}"
    return found(host, cupy, "cupy", facts, (warning,))

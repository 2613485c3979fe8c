"""SYCL: the runtime of Intel's DPC++ compiler, which PyTorch's XPU uses.

Finds:    every libsycl, in wheels, conda, ONEAPI_ROOT and the loader's cache, and the adapters for devices
          next to it.
Caveats:  it has only a C++ interface, so nothing is called; its devices are those of `xpu`.
Source:   oneAPI DPC++ documentation, "Environment variables".
"""

from msgspec.structs import replace

from mlbackends.base.patterns import pattern
from mlbackends.host.host import Host
from mlbackends.libraries.search import SharedLibrary, with_file_version
from mlbackends.model.records import Finding, nonempty

LIBRARY = SharedLibrary(
    "SYCL",
    ("libsycl",),
    homes=("ONEAPI_ROOT", "CMPLR_ROOT"),
    folders=("/opt/intel/oneapi/compiler/*/lib",),
    missing="libsycl.so",
    describe=with_file_version,
)
_ADAPTER = pattern(r"lib(?:ur_adapter|pi)_(\w+)\.so")


def find(host: Host) -> Finding:
    """Look for every copy of the runtime and the adapters next to the first."""
    finding = LIBRARY.find(host)
    if not finding.libraries:
        return finding
    beside = host.realpath(finding.libraries[0].path).rsplit("/", 1)[0]
    names = (_ADAPTER.match(name) for name in host.listdir(beside))
    adapters = sorted({match[1] for match in names if match})
    return replace(finding, facts=nonempty({"adapters": adapters, **finding.facts}))

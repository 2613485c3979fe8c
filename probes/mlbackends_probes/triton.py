"""Triton: the language and compiler for GPU kernels.

Finds:    every flavour of the distribution, its back ends, and the NVIDIA tools it brings.
Caveats:  it compiles a C file on first use: see `backends info compilers`.
Source:   Triton, triton/backends and triton/knobs.py.
"""

from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import entry_points, found, package
from mlbackends.host.system.kernel import mounted_above
from mlbackends.model.records import Finding, nonempty

GROUP = "framework"

_NAMES = (
    "triton", "pytorch-triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "triton-rocm",
    "triton-xpu", "triton-nightly", "triton-windows", "triton-cpu",
)  # fmt: skip
_TOOLS = ("ptxas", "ptxas-blackwell", "cuobjdump", "nvdisasm")
_TOOL_FOLDERS = ("backends/nvidia/bin", "third_party/cuda/bin", "common/bin")
_PROGRAMS = (
    "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH", "TRITON_CUOBJDUMP_PATH",
    "TRITON_NVDISASM_PATH", "TRITON_LIBCUDA_PATH", "TRITON_LIBHIP_PATH",
)  # fmt: skip


def find(host: Host) -> Finding:
    """Read the package's metadata and files, and list its back ends."""
    triton = package(host, _NAMES, "triton", "__init__.py")
    if triton is None:
        return found(host, None, "triton")
    backends, tools = set(entry_points(host, "triton.backends")), []
    if at := triton.location:
        names = host.listdir(f"{at}/backends")
        backends |= {name for name in names if host.is_file(f"{at}/backends/{name}/compiler.py")}
        tools = [
            tool
            for tool in _TOOLS
            if any(host.is_file(f"{at}/{folder}/{tool}") for folder in _TOOL_FOLDERS)
        ]
    paths = {name: host.env(name) for name in _PROGRAMS}
    warnings = [
        Reason("override-invalid", f"{name} is {path}, which does not exist", f"unset {name}")
        for name, path in paths.items()
        if path.startswith("/") and not host.exists(path)
    ]
    home = host.env("TRITON_HOME") or host.env("HOME")
    cache = host.env("TRITON_CACHE_DIR") or (f"{home}/.triton/cache" if home else "")
    mount = mounted_above(host, host.realpath(cache)) if cache.startswith("/") else None
    facts = {
        "bundled_tools": tools,
        "backends": sorted(backends),
        "cache_file_system": mount.kind if mount else "",
    }
    return found(host, triton, "triton", nonempty(facts), warnings)

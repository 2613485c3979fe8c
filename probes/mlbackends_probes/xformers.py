"""xFormers: attention kernels and layers for PyTorch.

Finds:    the distribution, xformers/version.py as text, and cpp_lib.json, which its build writes.
Caveats:  built for one torch, its operators may not load in another.
Source:   xFormers, xformers/_cpp_lib.py and setup.py (what cpp_lib.json holds).
"""

import contextlib
from typing import Any

import msgspec

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import built_for_torch, found, package
from mlbackends.libraries.cuda.driver import decode
from mlbackends.model.records import Finding, nonempty

GROUP = "framework"


def find(host: Host) -> Finding:
    """Read the package's metadata and files and of its build."""
    xformers = package(host, ("xformers",), "xformers", "version.py")
    # Every item of what the build wrote may be missing, or of another type.
    build: dict[str, Any] = {}
    if xformers and xformers.location:
        with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            data = host.read_bytes(f"{xformers.location}/cpp_lib.json")
            build = msgspec.json.decode(data, type=dict[str, Any])
    version, environment = (
        part if isinstance(part, dict) else {} for part in (build.get("version"), build.get("env"))
    )
    # 1208 here is 12.8; the CUDA runtime would write 12080.
    cuda, own = version.get("cuda"), version.get("use_torch_flash")
    cuda = cuda if isinstance(cuda, int) else 0
    texts = {
        "built_for_torch": version.get("torch"),
        "built_for_cuda": decode(cuda // 100 * 1000 + cuda % 100 * 10),
        "built_for_python": version.get("python"),
        "built_for_architectures": environment.get("TORCH_CUDA_ARCH_LIST"),
        "flash_attention_version": version.get("flash"),
    }
    facts = nonempty({name: text for name, text in texts.items() if isinstance(text, str)})
    if isinstance(own, bool):
        facts["uses_flash_attention_of_torch"] = own
    torch = facts.get("built_for_torch")
    warning = built_for_torch(host, "xformers", torch) if isinstance(torch, str) else None
    return found(host, xformers, "xformers", facts, (warning,))

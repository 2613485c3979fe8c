"""xFormers: attention kernels and layers for PyTorch.

Finds:    the distribution, xformers/version.py as text, and cpp_lib.json, which its build writes.
Caveats:  xformers is not imported. Built for one torch, its operators may not load in another.
Source:   xFormers, xformers/_cpp_lib.py and setup.py (what cpp_lib.json holds).
"""

from typing import Any

import msgspec

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import PACKAGE_FACTS, built_for_torch, found, package
from mlbackends.libraries.cuda.driver import decode
from mlbackends.model.records import Fact, FactValue, Finding

GROUP = "framework"
SUMMARY = ("xformers {version}",)
FACTS = (
    *PACKAGE_FACTS,
    Fact("built_for_torch", str, "The torch that its operators were built for."),
    Fact("built_for_cuda", str, "The CUDA release that they were built for."),
    Fact("built_for_python", str, "The Python that they were built with."),
    Fact("built_for_architectures", str, "The GPUs that they were built for, as the build says."),
    Fact("flash_attention_version", str, "The FlashAttention that is built in."),
    Fact("uses_flash_attention_of_torch", bool, "Whether it takes torch's FlashAttention instead."),
    Fact("environment", dict[str, str], "The variables that steer xFormers and are set."),
)

VARIABLES = (
    "XFORMERS_DISABLED", "XFORMERS_FORCE_DISABLE_TRITON", "XFORMERS_ENABLE_TRITON",
    "XFORMERS_MORE_DETAILS", "XFORMERS_IGNORE_FLASH_VERSION_CHECK",
)  # fmt: skip


def find(host: Host) -> Finding:
    """Read what the package says of itself and of its build."""
    xformers = package(host, ("xformers",), "xformers", "version.py")
    facts = _build(host, xformers.location) if xformers and xformers.location else {}
    torch = facts.get("built_for_torch")
    warning = built_for_torch(host, "xformers", torch) if isinstance(torch, str) else None
    return found(host, xformers, "xformers", facts=facts, variables=VARIABLES, warnings=(warning,))


def _build(host: Host, location: str) -> dict[str, FactValue]:
    """Return what cpp_lib.json tells; every item may be missing or of another type."""
    try:
        data = host.read_bytes(f"{location}/cpp_lib.json")
        build = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    version, environment = (
        part if isinstance(part, dict) else {} for part in (build.get("version"), build.get("env"))
    )
    texts = {
        "built_for_torch": version.get("torch"),
        "built_for_python": version.get("python"),
        "flash_attention_version": version.get("flash"),
        "built_for_architectures": environment.get("TORCH_CUDA_ARCH_LIST"),
    }
    facts: dict[str, FactValue] = {
        name: value for name, value in texts.items() if isinstance(value, str) and value
    }
    # 1208 here is 12.8; the CUDA runtime would write 12080.
    cuda = version.get("cuda")
    if isinstance(cuda, int) and (release := decode(cuda // 100 * 1000 + cuda % 100 * 10)):
        facts["built_for_cuda"] = release
    if isinstance(version.get("use_torch_flash"), bool):
        facts["uses_flash_attention_of_torch"] = version["use_torch_flash"]
    return facts

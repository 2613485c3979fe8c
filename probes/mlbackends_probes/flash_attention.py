"""FlashAttention: attention kernels for GPUs, as packages (flash-attn, FlashInfer).

Finds:    flash-attn (2), flash-attn-3, flash-attn-4, flashinfer-python, and their compiled parts.
Caveats:  torch includes another FlashAttention, which needs none of these.
Source:   FlashAttention and FlashInfer, "Installation"; the local version of flash-attn's wheels.
"""

import re

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import built_for_torch, found_set, package
from mlbackends.host.python.packages import distribution
from mlbackends.host.python.requirements import same_public_version
from mlbackends.libraries.library_names import stem_of
from mlbackends.model.records import Finding, nonempty

GROUP = "framework"
SUMMARY = ("{packages}",)

_LOCAL = pattern(r"cu(\d{2,3})[.-]?torch(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)
_PARTS = ("flashinfer-cubin", "flashinfer-jit-cache")


def find(host: Host) -> Finding:
    """Read the packages' metadata, and what flash-attn's wheel was built for."""
    flash = package(host, ("flash-attn",), "flash_attn", "__init__.py")
    flashinfer = package(host, ("flashinfer-python", "flashinfer"), "flashinfer")
    packages = (
        flash,
        package(host, ("flash-attn-3",), "flash_attn_interface"),
        package(host, ("flash-attn-4", "flash-attn-cute"), "flash_attn/cute"),
        flashinfer,
    )
    local = flash.metadata_version.partition("+")[2] if flash else ""
    built = _LOCAL.search(local) if local else None
    cuda, torch = (built[1], built[2]) if built else ("", "")
    folder = flash.location.rpartition("/")[0] if flash else ""
    names = host.listdir(folder) if folder else []
    stems = {stem_of(name).partition(".")[0] for name in names if name.startswith("flash_attn")}
    parts = {name: dist.version for name in _PARTS if (dist := distribution(host, name))}
    facts = {
        "built_for_cuda": cuda if len(cuda) < 3 else f"{cuda[:2]}.{cuda[2:]}",
        "built_for_torch": torch,
        "extension_modules": sorted(stems - {""}),
        "flashinfer_parts": parts,
    }
    warnings = [built_for_torch(host, flash.name, torch)] if flash and torch else []
    # FlashInfer refuses to start with kernels of another release.
    if flashinfer and "FLASHINFER_DISABLE_VERSION_CHECK" not in host.environment:
        warnings += [
            Reason(
                "conflict",
                f"{name} is {version}, and {flashinfer.name} is {flashinfer.version}",
                f"install {name}=={flashinfer.version}",
            )
            for name, version in parts.items()
            if not same_public_version(version, flashinfer.version)
        ]
    looked_for = "flash-attn or flashinfer-python"
    return found_set(host, packages, looked_for, "flash_attention", nonempty(facts), warnings)

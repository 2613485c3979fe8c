"""FlashAttention: attention kernels for GPUs, as packages (flash-attn, FlashInfer).

Finds:    flash-attn (2), flash-attn-3, flash-attn-4, flashinfer-python, and their compiled parts.
Caveats:  nothing is imported. torch has a FlashAttention of its own, which needs none of these.
Source:   FlashAttention and FlashInfer, "Installation"; the local version of flash-attn's wheels.
"""

import re

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import (
    SET_FACTS,
    Package,
    built_for_torch,
    found_set,
    package,
)
from mlbackends.host.python.packages import distribution
from mlbackends.host.python.requirements import same_public_version
from mlbackends.host.variables import anything, steering
from mlbackends.libraries.search import stem_of
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Fact, FactValue, Finding

GROUP = "framework"
SUMMARY = ("{packages}",)
FACTS = (
    *SET_FACTS,
    Fact("built_for_torch", str, "The release of torch that flash-attn's wheel was built for."),
    Fact("built_for_cuda", str, "The CUDA that flash-attn's wheel was built for."),
    Fact("extension_modules", list[str], "The compiled modules of flash-attn that are there."),
    Fact("flashinfer_parts", dict[str, str], "FlashInfer's packages of compiled kernels."),
    Fact("environment", dict[str, str], "The variables that steer them and are set."),
)

_LOCAL = pattern(r"cu(\d{2,3})[.-]?torch(\d+\.\d+(?:\.\d+)?)", re.IGNORECASE)
_PARTS = ("flashinfer-cubin", "flashinfer-jit-cache")
_RULES = {
    "FLASH_ATTENTION_TRITON_AMD_ENABLE": anything,
    "FLASH_ATTENTION_FORCE_BUILD": anything,
    "FLASH_ATTENTION_DISABLE_BACKWARD": anything,
    "FLASHINFER_CUDA_ARCH_LIST": anything,
    "FLASHINFER_WORKSPACE_BASE": anything,
    "FLASHINFER_CUBIN_DIR": anything,
    "FLASHINFER_DISABLE_VERSION_CHECK": anything,
    "FLASHINFER_LOGLEVEL": anything,
    "FLASHINFER_NVCC": anything,
}


def find(host: Host) -> Finding:
    """Read what the packages say of themselves."""
    flash = package(host, ("flash-attn",), "flash_attn", "__init__.py")
    flashinfer = package(host, ("flashinfer-python", "flashinfer"), "flashinfer")
    packages = (
        flash,
        package(host, ("flash-attn-3",), "flash_attn_interface"),
        package(host, ("flash-attn-4", "flash-attn-cute"), "flash_attn/cute"),
        flashinfer,
    )
    facts, warnings = _flash(host, flash)
    if parts := {name: one.version for name in _PARTS if (one := distribution(host, name))}:
        facts["flashinfer_parts"] = dict[str, object](parts)
        warnings += _parts_warnings(host, parts, flashinfer)
    return found_set(
        host,
        packages,
        "flash-attn or flashinfer-python",
        facts=facts | steering(host, _RULES),
        warnings=warnings,
    )


def _flash(host: Host, flash: Package | None) -> tuple[dict[str, FactValue], list[Reason | None]]:
    """Return facts and warnings of flash-attn, whose wheels name what they were built for."""
    facts: dict[str, FactValue] = {}
    warnings: list[Reason | None] = []
    if flash is None:
        return facts, warnings
    if match := _LOCAL.search(flash.metadata_version.partition("+")[2]):
        digits = match[1]
        facts["built_for_cuda"] = digits if len(digits) < 3 else f"{digits[:2]}.{digits[2:]}"
        facts["built_for_torch"] = match[2]
        warnings.append(built_for_torch(host, flash.name, match[2]))
    folder = flash.location.rpartition("/")[0]
    modules = {
        stem.partition(".")[0]
        for name in (host.listdir(folder) if folder else [])
        if name.startswith("flash_attn") and (stem := stem_of(name))
    }
    if modules:
        facts["extension_modules"] = list[object](sorted(modules))
    return facts, warnings


def _parts_warnings(
    host: Host, parts: dict[str, str], flashinfer: Package | None
) -> list[Reason | None]:
    """FlashInfer refuses to start beside kernels of another release."""
    if flashinfer is None or "FLASHINFER_DISABLE_VERSION_CHECK" in host.environment:
        return []
    return [
        Reason(
            "conflict",
            f"{name} is {version}, and {flashinfer.name} is {flashinfer.version}",
            f"install {name}=={flashinfer.version}",
        )
        for name, version in parts.items()
        if not same_public_version(version, flashinfer.version)
    ]

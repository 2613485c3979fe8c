"""A CPU's features by the kernel's names, and which of torch's kernels they allow.

Names are always Linux's; features.json translates those of macOS and other tools.
Source: the x86-64 psABI, "micro-architecture levels"; Linux's <asm/hwcap.h> of each architecture; torch
2.13, aten/src/ATen/native/DispatchStub.cpp: each architecture has its own capabilities, chosen when
torch was built.
"""

from typing import Any

from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.cpu.cpuinfo import Block
from mlbackends.host.system.kernel import HWCAP, HWCAP2

VARIABLE = "ATEN_CPU_CAPABILITY"

_LONGEST_NAME = 40
#: By the bytes of a vector. Source: torch 2.13, DispatchStub.h and testing/_internal/common_utils.py.
_SVE = {16: "SVE128", 32: "SVE256"}
_CAPABILITIES = ("DEFAULT", "AVX2", "AVX512", "SVE128", "SVE256", "VSX", "Z VECTOR")


def _table(name: str) -> Any:
    return table("host/cpu/features")[name]


# ---- features --------------------------------------------------------------------------------


def features_of(architecture: str, blocks: list[Block], auxiliary: dict[int, int]) -> frozenset[str]:
    """Return the features that every CPU has, by Linux's names; empty if they are not known.

    auxiliary: the auxiliary vector, for what /proc/cpuinfo does not list (POWER).
    """
    bits = _table("auxiliary_bits").get(architecture, {})
    by_bits = frozenset(
        name
        for entry, key in (("hwcap", HWCAP), ("hwcap2", HWCAP2))
        for bit, name in bits.get(entry, {}).items()
        if auxiliary.get(key, 0) >> int(bit) & 1
    )
    if architecture == "riscv64":
        listed = [isa_features(block["isa"]) for block in blocks if block.get("isa")]
    else:
        listed = [
            frozenset(filter(_is_name, (block.get("flags") or block.get("features") or "").split()))
            for block in blocks
            if "flags" in block or "features" in block
        ]
    features = frozenset.intersection(*listed) if listed else frozenset()
    if architecture == "riscv64" and by_bits and "v" not in by_bits:
        # The kernel was built without vector support or has it switched off: it traps.
        features = frozenset(name for name in features if name != "v" and not name.startswith("zv"))
    return features or by_bits


def features_of_macos(controls: dict[str, str]) -> frozenset[str]:
    """Return the features in macOS's `sysctl -a`, by Linux's names."""
    features = {name for control, name in _table("macos_arm").items() if controls.get(control) == "1"}
    for control in ("features", "leaf7_features", "extfeatures"):
        features |= canonical(controls.get(f"machdep.cpu.{control}", "").split())
    for control, value in controls.items():
        # Only this states whether macOS saves AVX-512's registers; CPUID alone is not enough.
        if control.startswith("hw.optional.avx512") and value == "0":
            features.discard(control.removeprefix("hw.optional."))
    return frozenset(features)


def canonical(names: list[str]) -> frozenset[str]:
    """Return Linux's names for feature names of macOS and of tools that read CPUID."""
    other_names = _table("other_names")
    renamed = (other_names.get(name.lower(), name.lower()) for name in names)
    return frozenset(filter(_is_name, renamed))


def isa_features(isa: str) -> frozenset[str]:
    """Return the extensions in a RISC-V isa string, with "g" expanded; empty if it is not one.

    Letters and long names: rv64imafdcv_zba_zvfh.
    """
    first, *rest = isa.lower().split("_")
    if not first.startswith(("rv64", "rv32")):
        return frozenset()
    # Older kernels write the long names without an underscore before the first: rv64imafdczba.
    base, _, joined = first[4:].partition("z")
    names = {*base, *rest} | ({f"z{joined}"} if joined else set())
    if "g" in names:
        names |= {*"imafd"}
    return frozenset(filter(_is_name, names))


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and text.isascii() and text.replace("_", "").isalnum()


def x86_64_level(features: frozenset[str]) -> str:
    """Return the highest x86-64 level whose features are all present, "" if there is none."""
    reached = ""
    # What each level adds to the one before. abm is LZCNT, pni is SSE3.
    for level, needed in _table("x86_64_levels").items():
        if not features.issuperset(needed):
            break
        reached = level
    return reached


def level_features(level: str) -> frozenset[str]:
    """Return the features of an x86-64 level and of those below it, none for another word."""
    levels: dict[str, list[str]] = _table("x86_64_levels")
    included = list(levels)[: list(levels).index(level) + 1] if level in levels else []
    return frozenset(name for word in included for name in levels[word])


def feature_facts(architecture: str, features: frozenset[str]) -> dict[str, bool | list[str]]:
    """Return the facts that are true if the CPU has one of some features; {} if no feature is known."""
    if not features:
        return {}
    facts: dict[str, bool | list[str]] = {
        fact: not features.isdisjoint(names) for fact, names in _table("facts").get(architecture, {}).items()
    }
    if architecture in ("x86_64", "x86"):
        facts["avx512"] = sorted(name for name in features if name.startswith("avx512"))
        facts["amx"] = sorted(name for name in features if name.startswith("amx"))
    if architecture == "riscv64":
        facts["riscv_vector_extensions"] = sorted(n for n in features if n.startswith("zv"))
    facts["features"] = sorted(features)
    return facts


# ---- torch.backends.cpu.get_cpu_capability ----------------------------------------------------


def hardware_capability(
    architecture: str, features: frozenset[str], sve_vector_bytes: int | None, platform: str
) -> str:
    """Return the capability that torch detects without the variable, "" if the features are not known.

    SVE128 and SVE256 need vectors of exactly 16 and 32 bytes, and BF16; other lengths run the NEON code.
    macOS builds have no SVE code.
    """
    needs: dict[str, list[str]] | None = _table("capability_needs").get(architecture)
    if needs is None or (not features and architecture != "ppc64le"):
        return ""
    has_sve = architecture == "aarch64" and platform == "linux" and "sve" in features
    if has_sve and sve_vector_bytes is None:
        return ""
    if has_sve and "bf16" in features and (capability := _SVE.get(sve_vector_bytes or 0)):
        return capability
    return next((name for name, needed in needs.items() if features.issuperset(needed)), "DEFAULT")


def capability(
    architecture: str, hardware: str, override: str | None, platform: str
) -> tuple[str, Reason | None]:
    """Return the capability that torch uses, and the problem with the variable's value, if there is one.

    override: the variable's value, None if it is not set; an empty one counts as a value.
    """
    if override is None:
        return hardware, None
    accepted = {"default": "DEFAULT"}
    if architecture != "aarch64" or platform == "linux":
        accepted = _table("capabilities").get(architecture, accepted)
    requested = accepted.get(override)
    if requested is None:
        return hardware, Reason(
            "override-invalid",
            f"{VARIABLE}={override[:60]!r} is not a value that torch accepts here; it is ignored",
            f"use one of: {', '.join(accepted)} (lower case), or unset {VARIABLE}",
        )
    is_supported = not hardware or _CAPABILITIES.index(requested) <= _CAPABILITIES.index(hardware)
    if architecture == "aarch64":  # vectors have one length
        is_supported = requested in ("DEFAULT", hardware or requested)
    if is_supported:
        return requested, None
    used, end = requested, "torch does not check this and dies of an illegal instruction (SIGILL)"
    if architecture == "aarch64":
        used, end = "DEFAULT", "torch warns and uses DEFAULT"
    return used, Reason(
        "override-exceeds-hardware",
        f"{VARIABLE}={override} requests more than this CPU has, which is {hardware}: {end}",
        f"unset {VARIABLE}",
    )

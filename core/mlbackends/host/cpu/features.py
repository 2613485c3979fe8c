"""What a CPU's instructions can do: the kernel's feature names, and the levels built of them.

Names are those of Linux everywhere; what macOS and other tools call them is translated.
Source: the x86-64 psABI, "micro-architecture levels"; Linux's <asm/hwcap.h> of each architecture.

Which of torch's CPU kernels a machine gets: `torch.backends.cpu.get_cpu_capability`'s ladder.

Source: torch 2.13, aten/src/ATen/native/DispatchStub.cpp; each architecture has its own ladder,
chosen when torch was built.
"""

from mlbackends.host.cpu.cpuinfo import Block
from mlbackends.host.system.kernel import HWCAP, HWCAP2
from mlbackends.model.reasons import Reason

X86_64_LEVELS = {
    "x86-64-v1": {"cmov", "cx8", "fpu", "fxsr", "lm", "mmx", "sse", "sse2", "syscall"},
    "x86-64-v2": {"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "x86-64-v3": {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"},
    "x86-64-v4": {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"},
}
"""What each level adds to the one before. abm is LZCNT, pni is SSE3."""

_Facts = dict[str, tuple[str, ...]]

_X86_FACTS: _Facts = {
    "sse4_2": ("sse4_2",),
    "avx": ("avx",),
    "avx2": ("avx2",),
    "fma": ("fma",),
    "f16c": ("f16c",),
    "avx_vnni": ("avx_vnni",),
    "vnni": ("avx512_vnni", "avx_vnni"),
    "bf16": ("avx512_bf16", "amx_bf16"),
    "fp16": ("avx512_fp16", "amx_fp16"),
    "hypervisor": ("hypervisor",),
}
_ARM_FACTS: _Facts = {
    "neon": ("asimd", "neon"),
    "dotprod": ("asimddp",),
    "i8mm": ("i8mm",),
    "bf16": ("bf16",),
    "fp16": ("asimdhp",),
    "sve": ("sve",),
    "sve2": ("sve2",),
    "sme": ("sme",),
    "sme2": ("sme2",),
}
_POWER_FACTS: _Facts = {"altivec": ("altivec",), "vsx": ("vsx",), "mma": ("mma",)}
_RISCV_FACTS: _Facts = {"riscv_vector": ("v",), "fp16": ("zvfh",), "bf16": ("zvfbfwma", "zvfbfmin")}
_Z_FACTS: _Facts = {"vx": ("vx",), "vxe": ("vxe",), "vxe2": ("vxe2",), "nnpa": ("nnpa",)}

FEATURE_FACTS: dict[str, _Facts] = {
    "x86_64": _X86_FACTS,
    "x86": _X86_FACTS,
    "aarch64": _ARM_FACTS,
    "arm": _ARM_FACTS,
    "ppc64le": _POWER_FACTS,
    "ppc64": _POWER_FACTS,
    "riscv64": _RISCV_FACTS,
    "s390x": _Z_FACTS,
}
"""Of each architecture, the facts that are true if the CPU has one of these features."""

_MACOS_ARM = {
    "hw.optional.AdvSIMD": "asimd",
    "hw.optional.neon": "asimd",
    "hw.optional.arm.AdvSIMD": "asimd",
    "hw.optional.arm.FEAT_AES": "aes",
    "hw.optional.arm.FEAT_BF16": "bf16",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_FCMA": "fcma",
    "hw.optional.arm.FEAT_FHM": "asimdfhm",
    "hw.optional.arm.FEAT_FP16": "asimdhp",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_JSCVT": "jscvt",
    "hw.optional.arm.FEAT_LSE": "atomics",
    "hw.optional.arm.FEAT_SHA256": "sha2",
    "hw.optional.arm.FEAT_SHA512": "sha512",
    "hw.optional.arm.FEAT_SME": "sme",
    "hw.optional.arm.FEAT_SME2": "sme2",
    "hw.optional.armv8_crc32": "crc32",
    "hw.optional.neon_fp16": "asimdhp",
    "hw.optional.neon_hpfp": "asimdhp",
}
_LONGEST_NAME = 40
_OTHER_NAMES = {
    "avx1.0": "avx",
    "avx512_vbmi": "avx512vbmi",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "em64t": "lm",
    "lahf": "lahf_lm",
    "lzcnt": "abm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "vmm": "hypervisor",
}
_ARM_BITS = {
    HWCAP: {1: "asimd", 9: "fphp", 10: "asimdhp", 20: "asimddp", 22: "sve", 23: "asimdfhm"},
    HWCAP2: {1: "sve2", 12: "svebf16", 13: "i8mm", 14: "bf16", 23: "sme", 37: "sme2"},
}
_POWER_BITS = {
    HWCAP: {28: "altivec", 7: "vsx", 10: "dfp"},
    HWCAP2: {31: "arch_2_07", 23: "arch_3_00", 22: "ieee128", 18: "arch_3_1", 17: "mma"},
}
_RISCV_BITS = {HWCAP: {letter: chr(ord("a") + letter) for letter in range(26)}}
_BITS: dict[str, dict[int, dict[int, str]]] = {
    "aarch64": _ARM_BITS,
    "ppc64le": _POWER_BITS,
    "ppc64": _POWER_BITS,
    "riscv64": _RISCV_BITS,
}


def features_of(
    architecture: str, blocks: list[Block], auxiliary: dict[int, int]
) -> frozenset[str]:
    """Return the features that every CPU has, as Linux names them; empty where nothing tells.

    auxiliary: the auxiliary vector, for what /proc/cpuinfo does not list (POWER).
    """
    if architecture == "riscv64":
        return _riscv_features(blocks, auxiliary)
    listed = [
        frozenset(filter(_is_name, (block.get("flags") or block.get("features") or "").split()))
        for block in blocks
        if "flags" in block or "features" in block
    ]
    features = frozenset.intersection(*listed) if listed else frozenset()
    return features or _from_bits(architecture, auxiliary)


def features_of_macos(controls: dict[str, str]) -> frozenset[str]:
    """Return the features that `sysctl -a` of macOS tells, as Linux names them."""
    found = {name for control, name in _MACOS_ARM.items() if controls.get(control) == "1"}
    for control in ("features", "leaf7_features", "extfeatures"):
        words = controls.get(f"machdep.cpu.{control}", "")
        found |= canonical(words.split())
    for control, value in controls.items():
        # Only here macOS tells whether AVX-512's registers can be used; cpuid's word is not enough.
        if control.startswith("hw.optional.avx512") and value == "0":
            found.discard(control.removeprefix("hw.optional."))
    return frozenset(found)


def canonical(names: list[str]) -> frozenset[str]:
    """Return Linux's names for those that macOS or cpuid-reading tools use."""
    known = (_OTHER_NAMES.get(name.lower(), name.lower()) for name in names)
    return frozenset(filter(_is_name, known))


def x86_64_level(features: frozenset[str]) -> str:
    """Return the highest x86-64 level of which all features are there, "" if there is none."""
    reached = ""
    for level, needed in X86_64_LEVELS.items():
        if not needed <= features:
            break
        reached = level
    return reached


def feature_facts(architecture: str, features: frozenset[str]) -> dict[str, bool | list[str]]:
    """Return what the features amount to, as facts; {} if no feature is known."""
    if not features:
        return {}
    facts: dict[str, bool | list[str]] = {
        fact: any(name in features for name in names)
        for fact, names in FEATURE_FACTS.get(architecture, {}).items()
    }
    if architecture in ("x86_64", "x86"):
        facts["avx512"] = sorted(name for name in features if name.startswith("avx512"))
        facts["amx"] = sorted(name for name in features if name.startswith("amx"))
    if architecture == "riscv64":
        facts["riscv_vector_extensions"] = sorted(n for n in features if n.startswith("zv"))
    facts["features"] = sorted(features)
    return facts


def _from_bits(architecture: str, auxiliary: dict[int, int]) -> frozenset[str]:
    return frozenset(
        name
        for entry, names in _BITS.get(architecture, {}).items()
        for bit, name in names.items()
        if auxiliary.get(entry, 0) >> bit & 1
    )


def _riscv_features(blocks: list[Block], auxiliary: dict[int, int]) -> frozenset[str]:
    """Return the letters and long names of an isa string such as rv64imafdcv_zba_zvfh."""
    listed = [isa_features(block["isa"]) for block in blocks if block.get("isa")]
    features = frozenset.intersection(*listed) if listed else frozenset()
    letters = _from_bits("riscv64", auxiliary)
    if not features:
        return letters
    if letters and "v" not in letters:
        # The kernel was built without vector support or has it switched off: it traps.
        return frozenset(name for name in features if name != "v" and not name.startswith("zv"))
    return features


def isa_features(isa: str) -> frozenset[str]:
    """Return the extensions of a RISC-V isa string, "g" spelled out; empty if it is none."""
    first, *rest = isa.lower().split("_")
    if not first.startswith(("rv64", "rv32")):
        return frozenset()
    letters = first[4:]
    # Older kernels write the long names without an underscore before the first: rv64imafdczba.
    base, _, joined = letters.partition("z")
    names = {*base, *rest} | ({f"z{joined}"} if joined else set())
    if "g" in names:
        names |= {*"imafd"}
    return frozenset(filter(_is_name, names))


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and text.isascii() and text.replace("_", "").isalnum()


VARIABLE = "ATEN_CPU_CAPABILITY"

_AVX512 = frozenset(("avx512vl", "avx512bw", "avx512dq", "fma"))
_AVX2 = frozenset(("avx2", "fma"))
_SVE256_BYTES = 32

_ACCEPTED = {
    "x86_64": {"default": "DEFAULT", "avx2": "AVX2", "avx512": "AVX512"},
    "x86": {"default": "DEFAULT", "avx2": "AVX2", "avx512": "AVX512"},
    "aarch64": {"default": "DEFAULT", "sve256": "SVE256"},
    "ppc64le": {"default": "DEFAULT", "vsx": "VSX"},
    "s390x": {"default": "DEFAULT", "zvector": "Z VECTOR"},
}
_ONLY_DEFAULT = {"default": "DEFAULT"}
_RUNGS = ("DEFAULT", "AVX2", "AVX512", "SVE256", "VSX", "Z VECTOR")


def hardware_capability(
    architecture: str, features: frozenset[str], sve_vector_bytes: int | None, platform: str
) -> str:
    """Return what torch would find without the variable; "" if the features are not known.

    SVE256 needs vectors of exactly 32 bytes and BF16; other lengths run the NEON code. macOS builds
    have no SVE code.
    """
    if architecture == "ppc64le":
        return "VSX"
    if not features:
        return ""
    if architecture in ("x86_64", "x86"):
        if features >= _AVX512:
            return "AVX512"
        return "AVX2" if features >= _AVX2 else "DEFAULT"
    if architecture == "aarch64" and platform == "linux" and "sve" in features:
        if sve_vector_bytes is None:
            return ""
        has_bf16 = "bf16" in features
        return "SVE256" if sve_vector_bytes == _SVE256_BYTES and has_bf16 else "DEFAULT"
    if architecture == "s390x":
        return "Z VECTOR" if "vxe" in features else "DEFAULT"
    return "DEFAULT" if architecture in ("aarch64", "riscv64", "loongarch64", "arm") else ""


def capability(
    architecture: str, hardware: str, override: str | None, platform: str
) -> tuple[str, Reason | None]:
    """Return what torch uses, and what is wrong with the variable's value, if anything is.

    override: the variable's value, None where it is not set; an empty one counts as a value.
    """
    if override is None:
        return hardware, None
    accepted = _ACCEPTED.get(architecture, _ONLY_DEFAULT)
    if architecture == "aarch64" and platform != "linux":
        accepted = _ONLY_DEFAULT
    wanted = accepted.get(override)
    if wanted is None:
        return hardware, _invalid(override, accepted)
    if not hardware or _RUNGS.index(wanted) <= _RUNGS.index(hardware):
        return wanted, None
    if architecture == "aarch64":
        return "DEFAULT", _exceeds(override, hardware, "torch warns and uses DEFAULT")
    ends = "torch does not check this and dies of an illegal instruction (SIGILL)"
    return wanted, _exceeds(override, hardware, ends)


def _invalid(override: str, accepted: dict[str, str]) -> Reason:
    return Reason(
        "override-invalid",
        f"{VARIABLE}={override[:60]!r} is no value that torch takes here; it is ignored",
        f"use one of: {', '.join(accepted)} (lower case), or unset {VARIABLE}",
    )


def _exceeds(override: str, hardware: str, ends: str) -> Reason:
    return Reason(
        "override-exceeds-hardware",
        f"{VARIABLE}={override} asks for more than this CPU has, which is {hardware}: {ends}",
        f"unset {VARIABLE}",
    )

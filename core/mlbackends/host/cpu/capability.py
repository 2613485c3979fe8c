"""Which of torch's CPU kernels a machine gets: `torch.backends.cpu.get_cpu_capability`'s ladder.

Source: torch 2.13, aten/src/ATen/native/DispatchStub.cpp; each architecture has its own ladder,
chosen when torch was built.
"""

from mlbackends.model.reasons import Reason

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

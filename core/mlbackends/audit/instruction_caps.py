"""What variables that cap instruction sets take away from a processor.

Source: oneDNN developer guide, CPU dispatcher control; oneMKL developer guide, Instruction Set
Specific Dispatching; OpenBLAS, TargetList.txt; NumPy, "CPU build options".
"""

_STEPS = ("avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile")
"""Of what Linux lists, what makes a step in speed; each needs those before it, in these libraries."""

_WIDEST_OF_OPENBLAS = 3
"""Its kernels for float32 and float64 go as far as AVX-512F."""

_ONEDNN = {
    "SSE41": 0,
    "AVX": 1,
    "AVX2": 2,
    "AVX2_VNNI": 2,
    "AVX2_VNNI_2": 2,
    "AVX512_CORE": 3,
    "AVX512_CORE_VNNI": 4,
    "AVX512_CORE_BF16": 5,
    "AVX512_CORE_FP16": 6,
    "AVX10_1_512": 6,
}
_MKL = {"SSE4_2": 0, "AVX": 1, "AVX2": 2, "AVX2_E1": 2}
_OLD = (
    "GENERIC PRESCOTT CORE2 PENRYN DUNNINGTON NEHALEM ATOM ATHLON OPTERON OPTERON_SSE3 BARCELONA"
    " BOBCAT NANO"
)
_OPENBLAS = {
    **dict.fromkeys(_OLD.split(), 0),
    **dict.fromkeys(("SANDYBRIDGE", "BULLDOZER", "PILEDRIVER", "STEAMROLLER"), 1),
    **dict.fromkeys(("HASWELL", "EXCAVATOR"), 2),
}
_CAPS = {
    "ONEDNN_MAX_CPU_ISA": _ONEDNN,
    "DNNL_MAX_CPU_ISA": _ONEDNN,
    "MKL_ENABLE_INSTRUCTIONS": _MKL,
    "OPENBLAS_CORETYPE": _OPENBLAS,
}
_BY_INTEL_ONLY = ("MKL_ENABLE_INSTRUCTIONS",)


def lost(name: str, value: str, features: frozenset[str], vendor: str) -> tuple[str, ...]:
    """Return what of the processor's features the value takes away, by Linux's names; () for nothing.

    features: by Linux's names. vendor: as the cpu probe spells it; MKL heeds the variable on Intel's
    processors alone.
    """
    if name == "NPY_DISABLE_CPU_FEATURES":
        words = value.replace(",", " ").split()
        return tuple(sorted({word.lower() for word in words} & features))
    cap = _CAPS.get(name, {}).get(value.upper())
    if cap is None or (name in _BY_INTEL_ONLY and vendor != "Intel"):
        return ()
    used = _STEPS[:_WIDEST_OF_OPENBLAS] if name == "OPENBLAS_CORETYPE" else _STEPS
    return tuple(step for step in used[cap:] if step in features)

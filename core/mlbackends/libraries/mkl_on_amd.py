"""MKL on AMD processors: the text shared by a hazard of the machine and a finding of a trace."""

WHY = (
    "On AMD Zen, MKL has tuned code only for matrix products, and only with AVX2; it does not use AVX-512"
    " there. Measured on Zen 4 with one thread, MKL reaches this fraction of OpenBLAS's speed: sgemm of 1024"
    " 0.66 to 0.98 (newer versions are faster) and of 64 0.57, dgemm 0.85 to 0.91, strsm 0.4 to 0.6, LU 0.55"
    " to 0.95, gemv 0.62. FFTs are faster with MKL. torch computes products of bf16 with oneDNN, not MKL."
)
ACTION = (
    "If small products, triangular solves, LU or matrix-vector products take most of the time, measure"
    " OpenBLAS, BLIS (AOCL) or oneDNN. No variable helps: MKL_DEBUG_CPU_TYPE has had no effect since 2020"
    " update 1, and MKL_ENABLE_INSTRUCTIONS has none on AMD."
)

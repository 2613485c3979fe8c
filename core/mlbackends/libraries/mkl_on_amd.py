"""MKL on AMD processors: the text shared by a hazard of the machine and a finding of a trace."""

WHY = (
    "MKL has code for Zen for products of matrices alone, of AVX2; AVX-512 is not used on AMD. Measured on"
    " Zen 4 with one thread, MKL's speed against OpenBLAS's: sgemm of 1024 0.66 to 0.98 (newer versions"
    " are better) and of 64 0.57, dgemm 0.85 to 0.91, strsm 0.4 to 0.6, LU 0.55 to 0.95, gemv 0.62;"
    " transforms are faster with MKL. torch's products of bf16 are oneDNN's, not MKL's."
)
ACTION = (
    "Where the time goes into small products, triangular solves, LU or products with vectors, measure"
    " OpenBLAS, BLIS (AOCL) or oneDNN. No variable helps: MKL_DEBUG_CPU_TYPE has had no effect since 2020"
    " update 1, and MKL_ENABLE_INSTRUCTIONS has none on AMD."
)

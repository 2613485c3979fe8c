/* How far a log-sum-exp may be from the one in double, relative to it where it is above 1. Read by
   attention_grid.cpp and by tests/kernels/test_flash_cpu.py. */
#define LOGSUMEXP_TOLERANCE 1e-5
#define LOGSUMEXP_TOLERANCE_FLOAT64 1e-12

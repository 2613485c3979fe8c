"""Processors, and the BLAS and LAPACK that compute on them."""

from mlbackends.model.device_kinds import Concern, Feature, Limit, Need, Shown

KIND = "cpu"
DEVICES: tuple[str, ...] = ()
PROBES = (
    "cpu",
    "numpy",
    "scipy",
    "torch",
    "openblas",
    "mkl",
    "blis",
    "flexiblas",
    "accelerate",
    "blas",
    "openmp",
    "limits",
    "memory",
)

_ONEDNN = "oneDNN, Data types, hardware limitations"

LIMITS = (
    Limit(
        "bfloat16",
        Concern.DTYPE,
        "It can be stored, and is computed by way of float32; oneDNN has it at all from AVX-512 on,"
        " and without the instructions it is 3 to 4 times slower than float32.",
        f"{_ONEDNN}; Arm Architecture Reference Manual, FEAT_BF16",
        (Need("bfloat16 arithmetic of the CPU"),),
        emulated=True,
    ),
    Limit(
        "float16",
        Concern.DTYPE,
        "It can be stored, and is computed by way of float32.",
        f"{_ONEDNN}; Arm Architecture Reference Manual, FEAT_FP16",
        (Need("float16 arithmetic of the CPU"),),
        emulated=True,
    ),
    Limit(
        "pinned memory without an accelerator",
        Concern.MEMORY,
        "Tensor.pin_memory() takes memory from an accelerator's driver; without one it raises"
        " RuntimeError.",
        "PyTorch 2.13, Tensor.pin_memory",
    ),
    Limit(
        "graph capture",
        Concern.OPERATION,
        "torch.accelerator.Graph is for accelerators; the CPU is none.",
        "PyTorch 2.13, torch.accelerator.Graph",
    ),
)

FEATURES = (
    Feature(
        "8-bit dot products",
        "Four products of 8-bit integers are added at once: VNNI, or Arm's dot products.",
        "Intel SDM, AVX512_VNNI and AVX-VNNI; Arm Architecture Reference Manual, FEAT_DotProd",
        (Need("8-bit dot products of the CPU"),),
    ),
    Feature(
        "matrix unit for bfloat16",
        "AMX multiplies tiles of bfloat16.",
        "Intel SDM, AMX-BF16",
        (Need("CPU instruction", one_of=("amx_bf16",)),),
    ),
    Feature(
        "matrix unit for 8-bit integers",
        "AMX multiplies tiles of int8.",
        "Intel SDM, AMX-INT8",
        (Need("CPU instruction", one_of=("amx_int8",)),),
    ),
    Feature(
        "transparent huge pages",
        "The kernel gives large pages unasked, or where a program asks with madvise.",
        "Linux, Documentation/admin-guide/mm/transhuge.rst",
        (Need("transparent huge pages", one_of=("always", "madvise")),),
    ),
)

SHOWN = (
    Shown("instructions", "cpu.capability"),
    Shown("CPUs that may be used", "limits.effective_cpus"),
    Shown("BLAS that NumPy was built with", "numpy.blas"),
    Shown("LAPACK that NumPy was built with", "numpy.lapack"),
    Shown("BLAS that SciPy was built with", "scipy.blas"),
    Shown("LAPACK that SciPy was built with", "scipy.lapack"),
    Shown("libblas of the system", "blas.blas"),
    Shown("libcblas of the system", "blas.cblas"),
    Shown("liblapack of the system", "blas.lapack"),
    Shown("OpenBLAS", "openblas.libraries"),
    Shown("threads of OpenBLAS are", "openblas.threading"),
    Shown("number of OpenBLAS threads", "openblas.threads"),
    Shown("MKL", "mkl.libraries"),
    Shown("number of MKL threads", "mkl.max_threads"),
    Shown("BLIS", "blis.libraries"),
    Shown("FlexiBLAS", "flexiblas.libraries"),
    Shown("Accelerate", "accelerate.libraries"),
    Shown("OpenMP", "openmp.libraries"),
    Shown("kernels of torch", "torch.cpu_capability"),
    Shown("memory that a process may lock", "limits.locked_memory_limit_bytes"),
    Shown("it may lock any amount", "memory.locked_memory_unlimited"),
)

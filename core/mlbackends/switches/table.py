"""Every switch, one row each; pure data.

A row makes the attribute or function of that name, its part in `flags()` and `set_flags()`, its
environment variable, its line of `backends flags`, its entry in the man page backends-flags(7), its line in
the type stub, what `backends run --set` accepts, and a test against the installed torch.

Source of names, defaults and accepted values: torch 2.15, torch/backends; `since` was read off 2.13 to 2.15.
"""

from mlbackends.switches import kinds
from mlbackends.switches.kinds import Boolean, Choice, Count, Kind, Text

PROBED = object()
"""In place of a default: what is installed here decides; see `mlbackends.switches.conditions`."""
NOT_IN_FLAGS = object()
"""In place of a value inside `flags()`: `flags()` leaves this switch alone."""

OURS = "mlbackends"
TORCH = "torch"
MKL = "MKL"
ONEDNN = "oneDNN"
OPENMP = "OpenMP"
CUBLAS = "cuBLAS"


class Switch:
    """One switch.

    name: dotted, as the attribute is reached where there is one.
    default: its value where nothing sets it; None stands for what the library chooses.
    """

    inside_flags: object = NOT_IN_FLAGS
    """What `flags()` sets it to by default, which differs from the default."""
    reached = "attribute"
    """Or "function", "flags" (through `set_flags()` and `flags()` alone) or "variable" (a library reads it
    when it is loaded: nothing in Python changes it)."""
    freezable = False
    """Whether `disable_global_flags()` forbids a bare assignment."""
    variable = ""
    """The environment variable of its first value: torch's or the library's own where there is one."""
    also: "dict[str, dict[str, str]] | None" = None
    """Older spellings of the variable, with the value that 1 and 0 stand for."""
    obeyed_by: tuple[str, ...] = (TORCH,)
    """Who reads it; () where nothing does yet."""
    torch_set = torch_get = ""
    """The functions that write and read it in torch, where it is no attribute of torch.backends; one of the
    switch's own name where it is reached by a function."""
    needs = ""
    """What a build of torch must have for it to be set: "cuda", "cudnn", "xpu"."""
    read_only = False
    """Whether it describes what is installed, and cannot be set."""
    since = ""
    """The first torch that has it, such as "2.14"; "" for 2.13 or older."""

    def __init__(self, name: str, kind: Kind, default: object, doc: str, **more: object) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.doc = doc
        #: The module or object that holds it: "cudnn", "cuda.matmul", "" for mlbackends itself.
        self.module, _, self.attribute = name.rpartition(".")
        vars(self).update(more)
        if self.reached == "function" and not self.torch_set:
            self.torch_set = self.torch_get = f"torch.backends.{name}"
        ours = f"MLBACKENDS_{name.replace('.', '_').upper()}"
        self.variable = self.variable or ours
        #: Every variable that gives its first value, and what a text in it stands for, {} for itself.
        #: The last one that is set counts: our own spelling, where torch's cannot say every value.
        self.variables: dict[str, dict[str, str]] = (
            {**self.also, ours: {}} if self.also else {self.variable: {}}
        )
        #: Whether torch has this switch, or reads its variable.
        self.of_torch = TORCH in self.obeyed_by

    def needed_torch(self, value: object = None) -> str:
        """Return the first torch that has the switch, and takes this value of it; "" for 2.13 or older."""
        since: dict[object, str] = getattr(self.kind, "since", {})
        return since.get(value, self.since)


_BOOL = Boolean()
_REDUCTION = kinds.Reduction()
#: (generic) and oneDNN know all four; CUDA has no bfloat16 for float32 data.
_PRECISION = Choice("none", "ieee", "tf32", "bf16", wrong_type=TypeError)
_CUDA_PRECISION = Choice("none", "ieee", "tf32", wrong_type=TypeError)
#: Products alone have bfx9: nine products of bfloat16, as exact as float32, which torch lets cuBLAS make on
#: sm100 and sm103. Our own take it for ieee.
_MATMUL_PRECISION = Choice(
    "none", "ieee", "tf32", "bfx9", wrong_type=TypeError, since={"bfx9": "2.15"}
)
_C = "torch._C."
_CUDA = "torch.backends.cuda."


def _sdp(name: str, what: str, *, private: bool = False) -> Switch:
    """Return the row of one of the switches of scaled-dot-product attention."""
    setter = f"{_C}_set_sdp_use_{name}" if private else f"{_CUDA}enable_{name}_sdp"
    getter = f"{_C}_get_{name}_sdp_enabled" if private else f"{_CUDA}{name}_sdp_enabled"
    return Switch(
        f"cuda.{name}_sdp",
        _BOOL,
        True,
        f"Let scaled-dot-product attention choose {what}; on the CPU too.",
        reached="function",
        obeyed_by=(OURS, TORCH),
        torch_set=setter,
        torch_get=getter,
    )


_ROWS = (
    Switch("fp32_precision", _PRECISION, "none",
         "Precision that may be used inside for float32 data; what every library and operation inherits.",
         inside_flags="none", freezable=True, obeyed_by=(OURS, TORCH)),
    Switch("float32_matmul_precision", Choice("highest", "high", "medium"), "highest",
         "The older switch for float32 products: highest is ieee, high is tf32, medium lets oneDNN use bf16.",
         reached="function", obeyed_by=(OURS, TORCH),
         torch_set="torch.set_float32_matmul_precision", torch_get="torch.get_float32_matmul_precision"),
    # ---- cuda ---------------------------------------------------------------
    Switch("cuda.matmul.allow_tf32", _BOOL, False,
         "Let cuBLAS use TF32 for float32 products: 10 bits of mantissa, several times as fast.",
         variable="TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", obeyed_by=(OURS, TORCH)),
    Switch("cuda.matmul.fp32_precision", _MATMUL_PRECISION, "none",
         "Precision inside float32 products on CUDA; none inherits from cudnn.fp32_precision.",
         obeyed_by=(OURS, TORCH)),
    Switch("cuda.matmul.allow_fp16_reduced_precision_reduction", _REDUCTION, (True, True),
         "Let cuBLAS add up float16 products in float16; with a second value, whether split-K is allowed.",
         obeyed_by=(OURS, TORCH)),
    Switch("cuda.matmul.allow_fp16_reduced_precision_reduction_split_k", _BOOL, True,
         "Whether split-K is allowed for float16; set by the second value of the switch above.",
         obeyed_by=(OURS, TORCH), read_only=True),
    Switch("cuda.matmul.allow_bf16_reduced_precision_reduction", _REDUCTION, (True, True),
         "Let cuBLAS add up bfloat16 products in bfloat16; with a second value, whether split-K is allowed.",
         obeyed_by=(OURS, TORCH)),
    Switch("cuda.matmul.allow_bf16_reduced_precision_reduction_split_k", _BOOL, True,
         "Whether split-K is allowed for bfloat16; set by the second value of the switch above.",
         obeyed_by=(OURS, TORCH), read_only=True),
    Switch("cuda.matmul.allow_fp16_accumulation", _BOOL, False,
         "Let cuBLAS accumulate float16 products in float16 all the way: faster on some cards, less exact.",
         obeyed_by=(OURS, TORCH)),
    Switch("cuda.matmul.prefer_cublaslt_grouped_gemm", _BOOL, False,
         "Let torch's grouped products use cuBLASLt where it supports them.", since="2.14"),
    Switch("cuda.preferred_linalg_library", Choice("default", "cusolver", "magma"), "default",
         "Library for linear algebra on CUDA.",
         reached="function", variable="TORCH_LINALG_PREFER_CUSOLVER",
         also={
             "TORCH_LINALG_PREFER_CUSOLVER": {"1": "cusolver", "0": ""},
             "TORCH_LINALG_PREFER_HIPSOLVER": {"1": "cusolver", "0": ""},
         }),
    Switch("cuda.preferred_blas_library",
         Choice("cublas", "cublaslt", "ck",
               aliases={"default": "cublas", "hipblas": "cublas", "hipblaslt": "cublaslt"}),
         "cublas",
         "Library for matrix products on CUDA and ROCm; default means cublas.",
         reached="function", variable="TORCH_BLAS_PREFER_CUBLASLT", obeyed_by=(OURS, TORCH),
         also={
             "TORCH_BLAS_PREFER_CUBLASLT": {"1": "cublaslt", "0": "cublas"},
             "TORCH_BLAS_PREFER_HIPBLASLT": {"1": "cublaslt", "0": "cublas"},
         }),
    Switch("cuda.preferred_rocm_fa_library", Choice("default", "aotriton", "ck", wrong_type=ValueError),
         "default", "Library for flash attention on ROCm.",
         reached="function", variable="TORCH_ROCM_FA_PREFER_CK",
         also={"TORCH_ROCM_FA_PREFER_CK": {"1": "ck", "0": ""}}),
    Switch("cuda.cublas_workspace_size", kinds.Workspace(), None,
         "Bytes of cuBLAS's workspace; none leaves it to the kind of card. Results repeat bit for bit with"
         " :4096:8 or :16:8.",
         reached="function", variable="CUBLAS_WORKSPACE_CONFIG", obeyed_by=(OURS, CUBLAS, TORCH),
         needs="cuda"),
    Switch("cuda.cublaslt_workspace_size", kinds.Kibibytes(), None,
         "Bytes of cuBLASLt's workspace, in the variable KiB; none leaves it to the kind of card.",
         reached="function", variable="CUBLASLT_WORKSPACE_SIZE", obeyed_by=(OURS, TORCH), needs="cuda"),
    Switch("cuda.cublas_workspace_cache", _BOOL, False,
         "Keep the workspaces of cuBLAS and cuBLASLt between calls, as every torch before 2.15 does.",
         reached="variable", variable="TORCH_CUBLAS_WORKSPACE_CACHE", since="2.15"),
    _sdp("flash", "flash attention"),
    _sdp("mem_efficient", "memory-efficient attention"),
    _sdp("math", "the plain formula"),
    _sdp("cudnn", "cuDNN's attention"),
    _sdp("overrideable", "what another device's plug-in brings", private=True),
    Switch("cuda.fp16_bf16_reduction_math_sdp", _BOOL, False,
         "Let the plain formula keep float16 and bfloat16 between its steps, not float32.",
         reached="function", obeyed_by=(OURS, TORCH),
         torch_set=f"{_CUDA}allow_fp16_bf16_reduction_math_sdp",
         torch_get=f"{_CUDA}fp16_bf16_reduction_math_sdp_allowed"),
    Switch("cuda.sdp_priority_order",
         kinds.Permutation(
             "math", "flash_attention", "efficient_attention", "cudnn_attention", "overrideable"
         ),
         (1, 2, 0, 3, 4),
         "The order in which scaled-dot-product attention tries its backends on CUDA.",
         reached="function", obeyed_by=(OURS, TORCH),
         torch_set=f"{_C}_set_sdp_priority_order", torch_get=f"{_C}_get_sdp_priority_order"),
    Switch("cuda.cudnn_sdp_deprioritized", _BOOL, False,
         "Keep cuDNN's attention behind the others, also where it would be tried first.",
         reached="variable", variable="TORCH_CUDNN_SDPA_DEPRIORITIZED", obeyed_by=(OURS, TORCH)),
    # ---- cudnn --------------------------------------------------------------
    Switch("cudnn.enabled", _BOOL, True, "Let convolutions, recurrent layers and normalisation use cuDNN.",
         inside_flags=False, freezable=True),
    Switch("cudnn.benchmark", _BOOL, False,
         "Time cuDNN's convolution algorithms once a shape, and keep the fastest.",
         inside_flags=False, freezable=True),
    Switch("cudnn.benchmark_limit", Count(), PROBED,
         "How many algorithms are timed at most; 0 for all. None where there is no cuDNN.",
         inside_flags=10, freezable=True, needs="cudnn"),
    Switch("cudnn.deterministic", _BOOL, False, "Use only algorithms of cuDNN that repeat bit for bit.",
         inside_flags=False, freezable=True),
    Switch("cudnn.allow_tf32", _BOOL, True,
         "The older switch for TF32 in cuDNN's convolutions and recurrent layers.",
         inside_flags=True, freezable=True),
    Switch("cudnn.fp32_precision", _CUDA_PRECISION, "none",
         "Precision inside float32 work on CUDA; what cuda.matmul, cudnn.conv and cudnn.rnn inherit.",
         inside_flags="none", freezable=True, obeyed_by=(OURS, TORCH)),
    Switch("cudnn.depthwise_kernel", Choice("auto", "cudnn", "native"), "auto",
         "Whose kernel runs depthwise convolutions.",
         inside_flags="auto", freezable=True),
    Switch("cudnn.conv.fp32_precision", _CUDA_PRECISION, "tf32",
         "Precision inside float32 convolutions on CUDA; tf32 until something else is set."),
    Switch("cudnn.rnn.fp32_precision", _CUDA_PRECISION, "tf32",
         "Precision inside float32 recurrent layers on CUDA; tf32 until something else is set."),
    Switch("cudnn.skip_compatibility_check", _BOOL, False,
         "Do not compare the version of cuDNN that is loaded with the one that torch was built with.",
         reached="variable", variable="PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK"),
    # ---- the CPU's libraries ------------------------------------------------
    Switch("cpu.capability",
         Choice("default", "avx2", "avx512", "vsx", "zvector", "sve128", "sve256", optional=True), None,
         "The highest instruction set that CPU kernels may use; the hardware's own by default.",
         reached="variable", variable="ATEN_CPU_CAPABILITY", obeyed_by=(OURS, TORCH)),
    Switch("mkldnn.enabled", _BOOL, True, "Let convolutions, recurrent layers and products use oneDNN.",
         inside_flags=False, freezable=True, obeyed_by=(OURS, TORCH)),
    Switch("mkldnn.deterministic", _BOOL, False, "Use only algorithms of oneDNN that repeat bit for bit.",
         inside_flags=False, freezable=True),
    Switch("mkldnn.allow_tf32", _BOOL, None,
         "The older switch for TF32 in oneDNN on Intel GPUs; None everywhere else.",
         inside_flags=True, freezable=True, needs="xpu"),
    Switch("mkldnn.fp32_precision", _PRECISION, "none",
         "Precision inside float32 work of oneDNN; what mkldnn.matmul, conv and rnn inherit.",
         inside_flags="none", freezable=True, obeyed_by=(OURS, TORCH)),
    Switch("mkldnn.matmul.fp32_precision", _PRECISION, "none", "Precision inside float32 products of oneDNN.",
         obeyed_by=(OURS, TORCH)),
    Switch("mkldnn.conv.fp32_precision", _PRECISION, "none",
         "Precision inside float32 convolutions of oneDNN."),
    Switch("mkldnn.rnn.fp32_precision", _PRECISION, "none",
         "Precision inside float32 recurrent layers of oneDNN."),
    Switch("mkldnn.verbose_level", Text(), None,
         "What oneDNN prints of each call: 0, 1, 2, or words such as dispatch,profile_exec.",
         reached="variable", variable="ONEDNN_VERBOSE", obeyed_by=(ONEDNN,)),
    Switch("mkldnn.default_fpmath_mode",
         Choice("STRICT", "BF16", "F16", "TF32", "ANY", unknown=ValueError, optional=True), None,
         "The precision that oneDNN itself may use inside float32 work, in any program.",
         reached="variable", variable="ONEDNN_DEFAULT_FPMATH_MODE", obeyed_by=(ONEDNN,)),
    Switch("mkldnn.max_cpu_isa", Text(), None,
         "The highest instruction set that oneDNN may use, such as AVX2 or AVX512_CORE_BF16.",
         reached="variable", variable="ONEDNN_MAX_CPU_ISA", obeyed_by=(ONEDNN,)),
    Switch("mkl.verbose_level", Choice("0", "1", "2", optional=True), None,
         "Whether MKL prints a line for each call.",
         reached="variable", variable="MKL_VERBOSE", obeyed_by=(MKL,)),
    Switch("mkl.num_threads", Count(1), None, "Threads that MKL uses.",
         reached="variable", variable="MKL_NUM_THREADS", obeyed_by=(MKL, TORCH)),
    Switch("mkl.conditional_numerical_reproducibility", Text(), None,
         "MKL's mode for results that repeat between processors, such as AVX2 or COMPATIBLE.",
         reached="variable", variable="MKL_CBWR", obeyed_by=(MKL,)),
    Switch("openmp.num_threads", kinds.ThreadCounts(), None,
         "Threads of a parallel region, one number a nesting level, such as 8 or 4,2.",
         reached="variable", variable="OMP_NUM_THREADS", obeyed_by=(OPENMP, MKL, ONEDNN, TORCH)),
    Switch("nnpack.enabled", _BOOL, True, "Let convolutions use NNPACK.",
         inside_flags=False, reached="flags",
         torch_set="torch.backends.nnpack.set_flags", torch_get=f"{_C}_get_nnpack_enabled"),
    Switch("mha.fastpath_enabled", _BOOL, True,
         "Let multi-head attention take its packed path where the inputs allow it.",
         reached="function", obeyed_by=(OURS, TORCH),
         torch_set="torch.backends.mha.set_fastpath_enabled",
         torch_get="torch.backends.mha.get_fastpath_enabled"),
    Switch("miopen.immediate", _BOOL, False,
         "Use MIOpen's immediate mode: no search for the best convolution.",
         inside_flags=False, freezable=True),
    Switch("opt_einsum.enabled", _BOOL, PROBED,
         "Let einsum of three and more operands use opt_einsum for the order of its products.",
         inside_flags=None, obeyed_by=(OURS, TORCH)),
    Switch("opt_einsum.strategy",
         Choice(
             "auto", "greedy", "optimal", "auto-hq", "branch-all", "branch-1", "branch-2",
             "dynamic-programming", "random-greedy", "random-greedy-128",
             unknown=ValueError, wrong_type=ValueError, optional=True,
         ),
         PROBED, "How opt_einsum looks for that order; None where it is not installed.",
         inside_flags=None, obeyed_by=(OURS, TORCH)),
    Switch("quantized.engine", Choice("fbgemm", "qnnpack", "onednn", "x86"), PROBED,
         "The library that runs quantized layers."),
    Switch("xnnpack.enabled", _BOOL, PROBED,
         "Whether torch was built with XNNPACK; an answer, not a setting.",
         read_only=True),
    Switch("python_native.disabled", _BOOL, False, "Leave out every kernel written in a Python DSL.",
         reached="variable", variable="TORCH_DISABLE_NATIVE_JIT", obeyed_by=(OURS, TORCH)),
    Switch("python_native.aot_disabled", _BOOL, False,
         "Leave out the kernels of Python DSLs that are compiled into torch's own.",
         reached="variable", variable="TORCH_DISABLE_NATIVE_AOT", since="2.15"),
    Switch("python_native.skip_version_check", _BOOL, False,
         "Take a DSL of any version, also one that was never tried.",
         reached="variable", variable="TORCH_NATIVE_SKIP_VERSION_CHECK", obeyed_by=(OURS, TORCH)),
)  # fmt: skip

SWITCHES: dict[str, Switch] = {switch.name: switch for switch in _ROWS}
"""Every switch by its name, in the order of the table."""


def of_module(module: str) -> list[Switch]:
    """Return the switches that a module or object holds itself, in order."""
    return [switch for switch in _ROWS if switch.module == module]

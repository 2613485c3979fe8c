"""Every switch, one row each; pure data. sentences.json describes each.

A row makes the attribute or function of that name, its part in `flags()` and `set_flags()`, its
environment variable, its line of `backends flags`, its entry in the man page backends-flags(7), its line in
the type stub, what `backends run --set` accepts, and a test against the installed torch.

Source of names, defaults and accepted values: torch 2.15, torch/backends; `since` was read off 2.13 to 2.15.
"""

from mlbackends.switches import kinds
from mlbackends.switches.kinds import Boolean, Choice, Count, Kind, Text

#: In place of a default: what is installed here decides; see `mlbackends.switches.conditions`.
PROBED = object()
#: In place of a value inside `flags()`: `flags()` leaves this switch alone.
NOT_IN_FLAGS = object()

OURS = "mlbackends"
TORCH = "torch"
MKL = "MKL"
ONEDNN = "oneDNN"
OPENMP = "OpenMP"
CUBLAS = "cuBLAS"
_BOTH = (OURS, TORCH)


class Switch:
    """One switch.

    name: dotted, as the attribute is reached where there is one.
    default: its value if nothing sets it; None leaves the choice to the library.
    """

    #: What `flags()` sets it to by default, which differs from the default.
    inside_flags: object = NOT_IN_FLAGS
    #: Or "function", "flags" (through `set_flags()` and `flags()` alone) or "variable" (a library reads it
    #: when it is loaded: nothing in Python changes it).
    reached = "attribute"
    #: Whether `disable_global_flags()` forbids a bare assignment.
    freezable = False
    #: The environment variable of its first value: torch's or the library's own where there is one.
    variable = ""
    #: Older spellings of the variable, with the values that 1 and 0 mean.
    also: "dict[str, dict[str, str]] | None" = None
    #: Who reads it; () where nothing does yet.
    used_by: tuple[str, ...] = (TORCH,)
    #: The functions that write and read it in torch, if it is not an attribute of torch.backends; one of the
    #: switch's own name where it is reached by a function.
    torch_set = torch_get = ""
    #: What a build of torch must have for it to be set: "cuda", "cudnn", "xpu".
    needs = ""
    #: Whether it describes what is installed, and cannot be set.
    read_only = False
    #: The first torch that has it, such as "2.14"; "" for 2.13 or older.
    since = ""

    def __init__(self, name: str, kind: Kind, default: object, **more: object) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        #: The module or object that holds it: "cudnn", "cuda.matmul", "" for mlbackends itself.
        self.module, _, self.attribute = name.rpartition(".")
        vars(self).update(more)
        if self.reached == "function" and not self.torch_set:
            self.torch_set = self.torch_get = f"torch.backends.{name}"
        ours = f"MLBACKENDS_{name.replace('.', '_').upper()}"
        self.variable = self.variable or ours
        #: Every variable that gives its first value, and what its texts mean, {} for themselves.
        #: The last one that is set counts: our own spelling, where torch's has no word for every value.
        self.variables: dict[str, dict[str, str]] = (
            {**self.also, ours: {}} if self.also else {self.variable: {}}
        )
        #: Whether torch has this switch, or reads its variable.
        self.of_torch = TORCH in self.used_by

    @property
    def doc(self) -> str:
        """What it does, in one sentence, from sentences.json: no read of a switch needs it."""
        from mlbackends.base.tables import table

        return str(table("switches/sentences")[self.name])

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
_MATMUL_PRECISION = Choice("none", "ieee", "tf32", "bfx9", wrong_type=TypeError, since={"bfx9": "2.15"})
_C = "torch._C."
_CUDA = "torch.backends.cuda."


def _sdp(name: str, *, private: bool = False) -> Switch:
    """Return the row of one of the switches of scaled-dot-product attention."""
    setter = f"{_C}_set_sdp_use_{name}" if private else f"{_CUDA}enable_{name}_sdp"
    getter = f"{_C}_get_{name}_sdp_enabled" if private else f"{_CUDA}{name}_sdp_enabled"
    return Switch(
        f"cuda.{name}_sdp",
        _BOOL,
        True,
        reached="function",
        used_by=_BOTH,
        torch_set=setter,
        torch_get=getter,
    )


_ROWS = (
    Switch("fp32_precision", _PRECISION, "none", inside_flags="none", freezable=True, used_by=_BOTH),
    Switch("float32_matmul_precision", Choice("highest", "high", "medium"), "highest",
         reached="function", used_by=_BOTH, torch_set="torch.set_float32_matmul_precision",
         torch_get="torch.get_float32_matmul_precision"),
    # ---- cuda ---------------------------------------------------------------
    Switch("cuda.matmul.allow_tf32", _BOOL, False,
         variable="TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", used_by=_BOTH),
    Switch("cuda.matmul.fp32_precision", _MATMUL_PRECISION, "none", used_by=_BOTH),
    Switch("cuda.matmul.allow_fp16_reduced_precision_reduction", _REDUCTION, (True, True)),
    Switch("cuda.matmul.allow_fp16_reduced_precision_reduction_split_k", _BOOL, True, read_only=True),
    Switch("cuda.matmul.allow_bf16_reduced_precision_reduction", _REDUCTION, (True, True)),
    Switch("cuda.matmul.allow_bf16_reduced_precision_reduction_split_k", _BOOL, True, read_only=True),
    Switch("cuda.matmul.allow_fp16_accumulation", _BOOL, False),
    Switch("cuda.matmul.prefer_cublaslt_grouped_gemm", _BOOL, False, since="2.14"),
    Switch("cuda.preferred_linalg_library", Choice("default", "cusolver", "magma"), "default",
         reached="function", variable="TORCH_LINALG_PREFER_CUSOLVER",
         also={
             "TORCH_LINALG_PREFER_CUSOLVER": {"1": "cusolver", "0": ""},
             "TORCH_LINALG_PREFER_HIPSOLVER": {"1": "cusolver", "0": ""},
         }),
    Switch("cuda.preferred_blas_library",
         Choice("cublas", "cublaslt", "ck",
               aliases={"default": "cublas", "hipblas": "cublas", "hipblaslt": "cublaslt"}),
         "cublas",
         reached="function", variable="TORCH_BLAS_PREFER_CUBLASLT",
         also={
             "TORCH_BLAS_PREFER_CUBLASLT": {"1": "cublaslt", "0": "cublas"},
             "TORCH_BLAS_PREFER_HIPBLASLT": {"1": "cublaslt", "0": "cublas"},
         }),
    Switch("cuda.preferred_rocm_fa_library", Choice("default", "aotriton", "ck", wrong_type=ValueError),
         "default",
         reached="function", variable="TORCH_ROCM_FA_PREFER_CK",
         also={"TORCH_ROCM_FA_PREFER_CK": {"1": "ck", "0": ""}}),
    Switch("cuda.cublas_workspace_size", kinds.Workspace(), None,
         reached="function", variable="CUBLAS_WORKSPACE_CONFIG", used_by=(CUBLAS, TORCH),
         needs="cuda"),
    Switch("cuda.cublaslt_workspace_size", kinds.Kibibytes(), None,
         reached="function", variable="CUBLASLT_WORKSPACE_SIZE", needs="cuda"),
    Switch("cuda.cublas_workspace_cache", _BOOL, False,
         reached="variable", variable="TORCH_CUBLAS_WORKSPACE_CACHE", since="2.15"),
    _sdp("flash"),
    _sdp("mem_efficient"),
    _sdp("math"),
    _sdp("cudnn"),
    _sdp("overrideable", private=True),
    Switch("cuda.fp16_bf16_reduction_math_sdp", _BOOL, False,
         reached="function", used_by=_BOTH, torch_set=f"{_CUDA}allow_fp16_bf16_reduction_math_sdp",
         torch_get=f"{_CUDA}fp16_bf16_reduction_math_sdp_allowed"),
    Switch("cuda.sdp_priority_order",
         kinds.Permutation(
             "math", "flash_attention", "efficient_attention", "cudnn_attention", "overrideable"
         ),
         (1, 2, 0, 3, 4),
         reached="function", used_by=_BOTH,
         torch_set=f"{_C}_set_sdp_priority_order", torch_get=f"{_C}_get_sdp_priority_order"),
    Switch("cuda.cudnn_sdp_deprioritized", _BOOL, False,
         reached="variable", variable="TORCH_CUDNN_SDPA_DEPRIORITIZED", used_by=_BOTH),
    # ---- cudnn --------------------------------------------------------------
    Switch("cudnn.enabled", _BOOL, True, inside_flags=False, freezable=True),
    Switch("cudnn.benchmark", _BOOL, False, inside_flags=False, freezable=True),
    Switch("cudnn.benchmark_limit", Count(), PROBED, inside_flags=10, freezable=True, needs="cudnn"),
    Switch("cudnn.deterministic", _BOOL, False, inside_flags=False, freezable=True),
    Switch("cudnn.allow_tf32", _BOOL, True, inside_flags=True, freezable=True),
    Switch("cudnn.fp32_precision", _CUDA_PRECISION, "none",
         inside_flags="none", freezable=True, used_by=_BOTH),
    Switch("cudnn.depthwise_kernel", Choice("auto", "cudnn", "native"), "auto",
         inside_flags="auto", freezable=True),
    Switch("cudnn.conv.fp32_precision", _CUDA_PRECISION, "tf32"),
    Switch("cudnn.rnn.fp32_precision", _CUDA_PRECISION, "tf32"),
    Switch("cudnn.skip_compatibility_check", _BOOL, False,
         reached="variable", variable="PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK"),
    # ---- the CPU's libraries ------------------------------------------------
    Switch("cpu.capability",
         Choice("default", "avx2", "avx512", "vsx", "zvector", "sve128", "sve256", optional=True), None,
         reached="variable", variable="ATEN_CPU_CAPABILITY", used_by=_BOTH),
    Switch("mkldnn.enabled", _BOOL, True, inside_flags=False, freezable=True),
    Switch("mkldnn.deterministic", _BOOL, False, inside_flags=False, freezable=True),
    Switch("mkldnn.allow_tf32", _BOOL, None, inside_flags=True, freezable=True, needs="xpu"),
    Switch("mkldnn.fp32_precision", _PRECISION, "none", inside_flags="none", freezable=True),
    Switch("mkldnn.matmul.fp32_precision", _PRECISION, "none"),
    Switch("mkldnn.conv.fp32_precision", _PRECISION, "none"),
    Switch("mkldnn.rnn.fp32_precision", _PRECISION, "none"),
    Switch("mkldnn.verbose_level", Text(), None,
         reached="variable", variable="ONEDNN_VERBOSE", used_by=(ONEDNN,)),
    Switch("mkldnn.default_fpmath_mode",
         Choice("STRICT", "BF16", "F16", "TF32", "ANY", unknown=ValueError, optional=True), None,
         reached="variable", variable="ONEDNN_DEFAULT_FPMATH_MODE", used_by=(ONEDNN,)),
    Switch("mkldnn.max_cpu_isa", Text(), None,
         reached="variable", variable="ONEDNN_MAX_CPU_ISA", used_by=(ONEDNN,)),
    Switch("mkl.verbose_level", Choice("0", "1", "2", optional=True), None,
         reached="variable", variable="MKL_VERBOSE", used_by=(MKL,)),
    Switch("mkl.num_threads", Count(1), None,
         reached="variable", variable="MKL_NUM_THREADS", used_by=(MKL, TORCH)),
    Switch("mkl.conditional_numerical_reproducibility", Text(), None,
         reached="variable", variable="MKL_CBWR", used_by=(MKL,)),
    Switch("openmp.num_threads", kinds.ThreadCounts(), None,
         reached="variable", variable="OMP_NUM_THREADS", used_by=(OPENMP, MKL, ONEDNN, TORCH)),
    Switch("nnpack.enabled", _BOOL, True,
         inside_flags=False, reached="flags", torch_set="torch.backends.nnpack.set_flags",
         torch_get=f"{_C}_get_nnpack_enabled"),
    Switch("mha.fastpath_enabled", _BOOL, True,
         reached="function", torch_set="torch.backends.mha.set_fastpath_enabled",
         torch_get="torch.backends.mha.get_fastpath_enabled"),
    Switch("miopen.immediate", _BOOL, False, inside_flags=False, freezable=True),
    Switch("opt_einsum.enabled", _BOOL, PROBED, inside_flags=None),
    Switch("opt_einsum.strategy",
         Choice(
             "auto", "greedy", "optimal", "auto-hq", "branch-all", "branch-1", "branch-2",
             "dynamic-programming", "random-greedy", "random-greedy-128",
             unknown=ValueError, wrong_type=ValueError, optional=True,
         ),
         PROBED,
         inside_flags=None),
    Switch("quantized.engine", Choice("fbgemm", "qnnpack", "onednn", "x86"), PROBED),
    Switch("xnnpack.enabled", _BOOL, PROBED, read_only=True),
    Switch("python_native.disabled", _BOOL, False,
         reached="variable", variable="TORCH_DISABLE_NATIVE_JIT", used_by=_BOTH),
    Switch("python_native.aot_disabled", _BOOL, False,
         reached="variable", variable="TORCH_DISABLE_NATIVE_AOT", since="2.15"),
    Switch("python_native.skip_version_check", _BOOL, False,
         reached="variable", variable="TORCH_NATIVE_SKIP_VERSION_CHECK", used_by=_BOTH),
)  # fmt: skip

#: Every switch by its name, in the order of the table.
SWITCHES: dict[str, Switch] = {switch.name: switch for switch in _ROWS}


def of_module(module: str) -> list[Switch]:
    """Return the switches that a module or object holds itself, in order."""
    return [switch for switch in _ROWS if switch.module == module]

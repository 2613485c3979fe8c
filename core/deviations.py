"""Where this library and torch 2.13 differ on the surface that they share; pure data.

`backends explain deviations` prints it, and tests/compat/test_deviations.py shows each of them side by side:
a difference that is not here fails there, and so does an entry that no longer is a difference.
"""

from msgspec import Struct


class Deviation(Struct, frozen=True):
    """One difference.

    code: stable, for use in scripts. names: what it concerns, dotted, below `mlbackends`; "*" is any.
    torch, ours: one sentence each on what happens. why: the reason for ours.
    """

    code: str
    names: tuple[str, ...]
    torch: str
    ours: str
    why: str


_FLAGS = ("cudnn.flags", "mkldnn.flags")

DEVIATIONS = (
    # ---- names --------------------------------------------------------------
    Deviation(
        "unknown-name-refused", ("*",),
        "Assigning to a name that nobody knows, as in cudnn.benchmrak = True, succeeds and does nothing.",
        "It raises AttributeError, with the name that was probably meant.",
        "A typo in a switch's name would go unnoticed.",
    ),
    Deviation(
        "all-modules-are-there", ("xeon", "xnnpack"),
        "torch.backends.xeon and torch.backends.xnnpack exist only after an import of their own.",
        "Every module is there after `import mlbackends`, loaded when it is first touched.",
        "Which modules torch happens to import is no promise.",
    ),
    Deviation(
        "module-is-one-object", ("m", "python_native.PythonNativeModule"),
        "A module with switches is an object that stands before the real module, which is its attribute m.",
        "The module is the real one with a class of its own, and m is the module itself; the class is made"
        " with two arguments everywhere.",
        "import, reload and pickling then work as for any module.",
    ),
    Deviation(
        "types-by-name", ("cudnn.CUDNN_TENSOR_DTYPES",),
        "The types of numbers that cuDNN takes are a set of torch.dtype.",
        "They are a frozenset of names: float16, float32, float64.",
        "Without torch there is no torch.dtype, and nobody should change the set.",
    ),
    Deviation(
        "causal-bias-is-no-tensor", ("CausalBias",),
        "CausalBias is a subclass of torch.Tensor.",
        "It is a class of its own, which attention here and torch's own CausalBias understand.",
        "Without torch there is no Tensor.",
    ),
    Deviation(
        "sdp-backend-is-an-enum", ("SDPBackend",),
        "SDPBackend(7) is made without complaint, and stands for nothing.",
        "SDPBackend is an Enum, and SDPBackend(7) raises ValueError.",
        "A number that stands for no backend would switch all of them off.",
    ),
    Deviation(
        "launcher-has-no-logger", ("xeon.run_cpu.logger", "xeon.run_cpu.format_str"),
        "The launcher has a logger of the module logging, and its format, as public names.",
        "It writes its lines itself, in the same form.",
        "A launcher that prints ten lines need not load logging.",
    ),
    # ---- values -------------------------------------------------------------
    Deviation(
        "words-are-text", ("*.fp32_precision", "fp32_precision", "float32_matmul_precision"),
        "A word may also be given as bytes, as in fp32_precision = b'tf32'.",
        "Bytes are refused as any other type: with TypeError, float32_matmul_precision with RuntimeError.",
        "That torch takes them is an accident of its bindings.",
    ),
    Deviation(
        "matmul-precision-word-refused", ("float32_matmul_precision",),
        "set_float32_matmul_precision() with a word that it does not know only warns, and changes nothing.",
        "It raises RuntimeError with the words there are.",
        "The program would go on at another precision than it asked for.",
    ),
    Deviation(
        "mkldnn-precision-is-its-own", ("mkldnn.fp32_precision",),
        "Assigning mkldnn.fp32_precision changes torch.backends.fp32_precision, so CUDA's too.",
        "It changes oneDNN's entry, as mkldnn.set_flags() does in both.",
        "The getter reads oneDNN's entry; that the setter writes another is a mistake.",
    ),
    Deviation(
        "all-or-nothing",
        (*_FLAGS, "cudnn.set_flags", "mkldnn.set_flags", "cuda.preferred_linalg_library"),
        "When one value is refused, those before it stay: cudnn.flags(benchmark=1) leaves cuDNN switched off,"
        " and a library that preferred_linalg_library() refuses is kept all the same.",
        "After an exception every switch is as it was before.",
        "Who catches the exception would go on with half of what was asked.",
    ),
    Deviation(
        "scopes-restore-inheritance", ("cudnn.flags",),
        "After cudnn.flags() the precisions of cudnn.conv and cudnn.rnn no longer follow fp32_precision: what"
        " is put back is allow_tf32, which writes tf32 to both.",
        "They go on following it, as before.",
        "A scope must leave nothing behind.",
    ),
    Deviation(
        "scopes-ask-no-older-switch", ("cudnn.flags",),
        "Entering cudnn.flags() raises RuntimeError where cudnn.allow_tf32 has no word for the precisions"
        " that were set, since it reads that to put it back.",
        "It is entered, and puts back the precisions themselves.",
        "The newer switches and scopes can then be used together.",
    ),
    Deviation(
        "flags-tell-of-disabling", _FLAGS,
        "cudnn.flags(benchmark=True) switches cuDNN off inside the block, since enabled is False there unless"
        " given, and says nothing; mkldnn.flags() does the same.",
        "It switches it off too, and warns once a process.",
        "Nearly nobody who writes that means it; but programs may rest on it.",
    ),
    Deviation(
        "mkldnn-flags-are-quiet", ("mkldnn.flags",),
        "Each mkldnn.flags() warns that TF32 exists on Intel GPUs alone, since its default asks for it.",
        "The default is passed over; asking for False there warns.",
        "A warning about what nobody asked for is noise.",
    ),
    Deviation(
        "benchmark-limit-is-a-number", ("cudnn.benchmark_limit",),
        "Where there is no cuDNN, benchmark_limit takes anything, also after disable_global_flags().",
        "It takes whole numbers from 0 up, or None, and is frozen with the others, with cuDNN or without.",
        "A program should not fail on the first machine that has a GPU.",
    ),
    Deviation(
        "fastpath-is-a-bool", ("mha.set_fastpath_enabled", "mha.fastpath_enabled"),
        "mha.set_fastpath_enabled() stores anything, so 'off' means on.",
        "It takes True and False, and raises RuntimeError for anything else, as the other switches do.",
        "A wrong value would be taken for a true one.",
    ),
    Deviation(
        "einsum-switches-checked", ("opt_einsum.enabled", "opt_einsum.strategy"),
        "Assigning opt_einsum.enabled or .strategy takes anything, and from then on hides what flags() and"
        " set_flags() do; set_flags('yes') stores 'yes'. A wrong strategy fails in the next einsum.",
        "enabled takes True and False, strategy the names of strategies; both forms write the same switch,"
        " and None means what a new process starts with.",
        "A switch that can be shadowed for good is none.",
    ),
    Deviation(
        "einsum-strategies-of-opt-einsum",
        ("opt_einsum.strategy", "opt_einsum.flags", "opt_einsum.set_flags"),
        "flags() and set_flags() take the strategies auto, greedy and optimal.",
        "They take those of opt_einsum that need no argument, such as auto-hq and dynamic-programming.",
        "Programs reach those by assigning past torch's check; here assignment is checked alike.",
    ),
    Deviation(
        "einsum-flags-restore", ("opt_einsum.flags",),
        "Leaving opt_einsum.flags(enabled=True, ...) where opt_einsum was disabled raises ValueError.",
        "It restores what it found.",
        "A scope must be able to put back what it found.",
    ),
    Deviation(
        "cxx-warnings-are-warnings", ("cuda.preferred_linalg_library", "cuda.preferred_blas_library"),
        "That MAGMA is deprecated and Composable Kernel experimental is printed on standard error.",
        "It is a UserWarning.",
        "A Python program can filter or raise a warning.",
    ),
    Deviation(
        "workspaces-without-cuda",
        ("cuda.cublas_workspace_size", "cuda.cublaslt_workspace_size", "cuda.blas_workspace_size"),
        "The functions for cuBLAS's workspaces raise AttributeError in a torch without CUDA.",
        "They keep the size that is set, and answer with the size that cuBLAS would use.",
        "A switch can be carried into a torch that has CUDA.",
    ),
    Deviation(
        "variables-are-checked-together",
        (
            "cuda.cudnn_sdp_deprioritized", "cudnn.skip_compatibility_check", "python_native.disabled",
            "python_native.skip_version_check",
        ),
        "A variable is read when its library is first used, and some count as unset unless they are 1.",
        "All are read at the first touch of any switch, and each that holds nonsense is warned of.",
        "A variable that has no effect should say so, and where the program starts.",
    ),
    # ---- attention ----------------------------------------------------------
    Deviation(
        "priority-order-checked", ("cuda.sdp_priority_order",),
        "The order of the attention backends may name one twice or none at all, and is not checked: a sixth"
        " entry is written past the end of the array.",
        "It must name each backend once.",
        "The rest of the old order shows through, or memory is damaged.",
    ),
    Deviation(
        "priority-order-restored", ("sdpa_kernel",),
        "Leaving sdpa_kernel(..., set_priority=True) restores the order of those backends alone that were"
        " enabled before, so the order changes where one was not.",
        "The whole order is as it was before.",
        "A scope must leave nothing behind.",
    ),
    Deviation(
        "sdpa-kernel-takes-backends", ("sdpa_kernel",),
        "A number or a word in the list of sdpa_kernel() stands for nothing, so every backend is off.",
        "It raises TypeError, with the backend that was probably meant, and ValueError for SDPBackend.ERROR.",
        "The error would come from the next call of attention, and speak of something else.",
    ),
    Deviation(
        "can-use-tells-why",
        (
            "cuda.can_use_flash_attention", "cuda.can_use_efficient_attention",
            "cuda.can_use_cudnn_attention",
        ),
        "A torch without CUDA answers False and gives no reason, also with debug=True.",
        "debug=True warns of every reason, on any machine.",
        "The question is what a call would need; that can be told anywhere.",
    ),
    Deviation(
        "attention-mask-beside-causal", ("scaled_dot_product_attention",),
        "On the CPU flash attention applies attn_mask and is_causal together; the plain formula refuses it.",
        "Every backend refuses it, with RuntimeError.",
        "The documentation says that it is an error.",
    ),
    Deviation(
        "attention-lengths-checked", ("scaled_dot_product_attention",),
        "On the CPU flash attention takes a value of another length than the key, and computes nonsense.",
        "It raises RuntimeError.",
        "There is no right answer.",
    ),
    Deviation(
        "attention-without-gradients", ("scaled_dot_product_attention",),
        "A result of tensors that require a gradient requires one.",
        "Such tensors are refused with RuntimeError, unless inside torch.no_grad().",
        "The gradient would be lost in silence: the kernels here go forward only.",
    ),
    # ---- answers ------------------------------------------------------------
    Deviation(
        "answers-of-this-machine",
        (
            "cuda.is_built", "cudnn.is_available", "cudnn.version", "cusparselt.is_available",
            "cusparselt.version", "kleidiai.is_available", "mkl.is_available", "mkldnn.is_available",
            "nnpack.is_available", "openmp.is_available", "quantized.supported_engines", "xnnpack.enabled",
        ),
        "An answer says what this build of torch has in it.",
        "It says what is installed here and works: is_built() whether a part is here that we compute with.",
        "There is no build to speak of; and a library that is built in may still fail on the machine.",
    ),
    Deviation(
        "cudnn-modes-without-cudnn", ("cudnn.rnn.get_cudnn_mode",),
        "get_cudnn_mode('LSTM') raises AttributeError where there is no cuDNN.",
        "It returns cuDNN's number.",
        "The number is part of cuDNN's interface, and the exception spoke of None.",
    ),
    # ---- scopes and programs ------------------------------------------------
    Deviation(
        "verbose-scopes-nest", ("mkl.verbose", "mkldnn.verbose"),
        "Leaving a verbose scope always switches the printing off, also what MKL_VERBOSE asked for.",
        "It gives back the level that it found, of an outer scope or of the variable.",
        "The rest of the outer block would be silent.",
    ),
    Deviation(
        "verbose-level-0-silences", ("mkl.verbose", "mkldnn.verbose"),
        "A scope with level 0 changes nothing on entering, and switches the printing off on leaving.",
        "It silences its block.",
        "That is what it says.",
    ),
    Deviation(
        "dsl-names-checked",
        (
            "python_native.disable_operations", "python_native.enable_operations",
            "python_native.disable_dispatch_keys", "python_native.enable_dispatch_keys",
            "python_native.operations_disabled", "python_native.is_operation_disabled",
            "python_native.get_dsl_operations", "python_native.is_dsl_disabled",
        ),
        "An operation, dispatch key or DSL that nobody knows is taken, and switches nothing off.",
        "It raises UnknownName, a LookupError, with the name that was probably meant.",
        "A typo would leave the kernel on that one wants off.",
    ),
    Deviation(
        "dsl-controllers-stay", ("python_native.triton", "python_native.cutedsl"),
        "python_native.triton = False succeeds, hides the controller, and switches nothing off.",
        "It raises AttributeError, and names python_native.triton.enabled.",
        "It looks like a switch, and would be none.",
    ),
    Deviation(
        "dsl-enabled-is-a-bool", ("python_native.triton.enabled", "python_native.cutedsl.enabled"),
        "Anything may be assigned, so 'no' means on.",
        "It takes True and False, and raises TypeError for anything else.",
        "A wrong value would be taken for a true one.",
    ),
    Deviation(
        "launcher-exit-code", ("xeon.run_cpu",),
        "The launcher exits with 0 also when the program that it started failed.",
        "It exits with the exit code of the first instance that failed.",
        "A job that failed would pass for one that went well.",
    ),
)  # fmt: skip

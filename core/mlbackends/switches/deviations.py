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
        "functions-take-no-value", ("cuda.preferred_blas_library", "cuda.enable_flash_sdp"),
        "Assigning a value to a function that sets a switch replaces the function, and sets nothing.",
        "It raises AttributeError, which names the call; only a callable may take its place.",
        "The switch would be lost without a word.",
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
        "causal-bias-keeps-its-shape", ("causal_upper_left", "scaled_dot_product_attention"),
        "A causal mask from the upper left is taken for scores of another shape too.",
        "It raises RuntimeError with both shapes.",
        "A mask of another shape is a mistake.",
    ),
    Deviation(
        "set-priority-is-a-bool", ("sdpa_kernel",),
        "set_priority is taken by its truth, 'no' for yes.",
        "What is no bool raises TypeError.",
        "An unnoticed order is found late.",
    ),
    Deviation(
        "dropout-has-its-own-weights", ("scaled_dot_product_attention",),
        "dropout_p drops weights by the device's generator.",
        "The same seed repeats the same drops, torch.manual_seed for torch's tensors and numpy.random.seed"
        " for all others; which weights they are differs from torch.",
        "Ours is another algorithm.",
    ),
    Deviation(
        "traced-tensors-refused", ("matmul", "einsum", "fft", "scaled_dot_product_attention"),
        "Fake, traced, batched (vmap) and dual (jvp) tensors are computed or recorded.",
        "They raise RuntimeError with what to do; under torch.compile the graph breaks instead.",
        "We read memory, and theirs is empty or not the whole truth.",
    ),
    Deviation(
        "transforms-are-numpys", ("fft",),
        "Transforms of whole numbers have 32 bits.",
        "They have 64, as in numpy.fft, whose names and arguments mlbackends.fft has.",
        "One library's rules, not a mixture.",
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
        "Every backend refuses it, with RuntimeError, also below torch.compile(backend='mlbackends').",
        "The documentation says that it is an error.",
    ),
    Deviation(
        "attention-lengths-checked", ("scaled_dot_product_attention",),
        "On the CPU flash attention takes a value of another length than the key, and computes nonsense.",
        "It raises RuntimeError.",
        "There is no right answer.",
    ),
    Deviation(
        "attention-gradients-once", ("scaled_dot_product_attention",),
        "The gradients of the plain formula can be differentiated again, those of flash attention cannot.",
        "RuntimeError tells whoever differentiates them again, whichever backend computed them.",
        "A backend gives gradients of its own, and none has formulas for the next order.",
    ),
    Deviation(
        "attention-dropout-is-a-probability", ("scaled_dot_product_attention",),
        "The plain formula takes a negative dropout_p, or one that is no number, for none.",
        "Every backend refuses it, with RuntimeError.",
        "It is a mistake, and the other kernels refuse it.",
    ),
    Deviation(
        "attention-keeps-nan", ("scaled_dot_product_attention",),
        "On the CPU flash attention gives 0 for a row of the query that has NaN; the formula gives NaN.",
        "Every backend gives NaN.",
        "A mistake in the input should not look like a row that sees no key.",
    ),
    Deviation(
        "attention-leaves-types-to-the-caller", ("scaled_dot_product_attention",),
        "Under torch.autocast the inputs are cast to its type, and so is the result.",
        "A direct call computes in the type of its inputs; torch.compile(backend='mlbackends') casts.",
        "What is called without torch is the same function, and knows no autocast.",
    ),
    Deviation(
        "attention-takes-no-nested-tensors", ("scaled_dot_product_attention",),
        "The plain formula takes nested tensors on the CPU.",
        "They are refused with RuntimeError.",
        "No kernel here computes on them, and a padded copy is the caller's to choose.",
    ),
    Deviation(
        "attention-tells-all-reasons", ("scaled_dot_product_attention",),
        "Where no backend can run, the exception gives no reason; warnings give the first of each backend.",
        "The exception gives every reason of every backend.",
        "A warning is shown once a process, and may be switched off.",
    ),
    Deviation(
        "priority-order-obeyed-on-the-cpu", ("cuda.sdp_priority_order", "sdpa_kernel"),
        "On the CPU sdpa_kernel(..., set_priority=True) changes nothing: flash attention goes first.",
        "The order counts on every device; where it was not set it is torch's.",
        "That is what set_priority says.",
    ),
    # ---- operations and CUDA's libraries --------------------------------------
    Deviation(
        "preferred-library-is-installed",
        ("cuda.preferred_blas_library", "cuda.preferred_linalg_library"),
        "A library is refused where this build of torch was made without it.",
        "It is refused where it is not installed here.",
        "What counts is what is on the machine.",
    ),
    Deviation(
        "plan-cache-names-checked", ("cuda.cufft_plan_cache",),
        "Without a device any name of cufft_plan_cache raises AssertionError, also one that does not exist.",
        "A name that does not exist raises AttributeError, with or without a device.",
        "A typo is told as one.",
    ),
    Deviation(
        "messages-name-the-switch",
        (
            "cuda.enable_flash_sdp", "cuda.enable_cudnn_sdp", "cuda.preferred_rocm_fa_library",
            "python_native.triton.enabled", "python_native.cutedsl.enabled",
        ),
        "Some messages name functions inside torch, a flags() that does not exist, or a wrong value where"
        " the type is wrong.",
        "They name the switch, and the functions there are; the type of the exception is the same.",
        "A message should lead to what can be changed.",
    ),
    Deviation(
        "lowered-precision-everywhere", ("mkldnn.matmul.fp32_precision",),
        "mkldnn.matmul.fp32_precision = 'bf16' changes nothing on a CPU without instructions for bfloat16.",
        "Operands are rounded on every machine.",
        "The same program then gives the same precision everywhere.",
    ),
    Deviation(
        "einsum-takes-one-type", ("einsum",),
        "Operands of two types are promoted where nothing is summed, and refused elsewhere.",
        "They are refused with RuntimeError.",
        "Whether it works would depend on the equation, and the result's type would be a surprise.",
    ),
    Deviation(
        "einsum-sizes-are-one-error", ("einsum",),
        "Sizes that do not fit raise RuntimeError for two operands, and ValueError for three or more where"
        " opt_einsum is installed.",
        "They raise RuntimeError.",
        "The exception should not depend on an optional package.",
    ),
    Deviation(
        "rows-that-see-nothing-are-zero", ("multi_head_attention",),
        "A row whose keys are all masked gives NaN where weights are asked for.",
        "Its weights are 0, and its output is the bias.",
        "The result should not depend on whether weights are asked for.",
    ),
    Deviation(
        "causal-needs-no-mask", ("multi_head_attention",),
        "is_causal=True without attn_mask raises RuntimeError.",
        "It applies the causal mask.",
        "That is what it says.",
    ),
    # ---- answers ------------------------------------------------------------
    Deviation(
        "answers-of-this-machine",
        (
            "cuda.is_built", "cudnn.is_available", "cudnn.version", "cusparselt.is_available",
            "cusparselt.version", "kleidiai.is_available", "mkl.is_available", "mkldnn.is_available",
            "nnpack.is_available", "openmp.is_available", "quantized.supported_engines", "xnnpack.enabled",
            "cuda.is_flash_attention_available", "python_native.triton.available",
            "python_native.triton.version", "python_native.cutedsl.available",
            "python_native.cutedsl.version",
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
        "An operation, dispatch key or DSL that nobody knows, or a number, is taken, to no effect.",
        "It raises UnknownName, a LookupError, with the name that was probably meant; TypeError for no text.",
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
        "verbose-levels-are-integers", ("mkl.verbose", "mkldnn.verbose"),
        "The level 0.0 is taken for 0, and one beyond 32 bits raises TypeError.",
        "0.0 raises TypeError as 1.5 does, and a number that is no level AssertionError as 7 does.",
        "The type is what is wrong with the one, the number with the other.",
    ),
    Deviation(
        "verbose-reaches-every-copy", ("mkl.verbose", "mkldnn.verbose"),
        "The scopes switch the copies of MKL and oneDNN inside torch.",
        "They switch every copy that the process has loaded, all or none.",
        "A program's own MKL is another than torch's.",
    ),
    Deviation(
        "dsl-order-read-when-needed", ("python_native",),
        "TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN with what cannot be imported breaks `import torch`.",
        "It raises the same ValueError when overrides are first asked for.",
        "An import should run no code of a variable's.",
    ),
    Deviation(
        "overrides-count-at-once", ("python_native",),
        "An override that is registered or reordered counts after the next rebuild alone.",
        "It counts from the next call on.",
        "A call should meet what was registered before it.",
    ),
    Deviation(
        "overrides-are-checked", ("python_native",),
        "An override with an unknown dispatch key, a blank name or no function is taken, and fails later.",
        "It raises UnknownName, ValueError or TypeError.",
        "The mistake is told where it is made.",
    ),
    Deviation(
        "override-order-checked", ("python_native",),
        "A user's ordering function may return one override twice, or what it was not given.",
        "That is logged, and the order stays.",
        "An override would be lost, or asked twice.",
    ),
    Deviation(
        "dsl-disable-is-certain", ("python_native.DSLController",),
        "disable() leaves it to the DSL's module, so a DSL whose module does nothing stays enabled.",
        "It is disabled.",
        "That is what it says.",
    ),
    Deviation(
        "dsl-scopes-overlap", ("python_native.operations_disabled",),
        "Of two scopes that overlap, as in two threads, the end of the first enables the operation for both.",
        "It is enabled when the last one has ended.",
        "A scope holds until its end.",
    ),
    Deviation(
        "jit-spec-any-value", ("jit.to_backend",),
        "The value of a method in the spec must be of one type that TorchScript can infer.",
        "It may be anything but an empty dict or list.",
        "It is handed to the backend's own functions, which are Python here.",
    ),
    Deviation(
        "jit-lowering-nests", ("jit.to_backend", "jit.to_backend_selective"),
        "A module that holds a lowered one cannot be lowered where the backend's class cannot be serialized.",
        "It can.",
        "A backend is a Python object, and need not be cloned.",
    ),
    Deviation(
        "jit-selects-objects", ("jit.to_backend_selective",),
        "Of two submodules of one class one alone can be chosen, and then the call fails by an assertion.",
        "The one that was named is lowered.",
        "Methods belong to the object here, and not to a type that both share.",
    ),
    Deviation(
        "jit-wrong-arguments", ("jit.to_backend",),
        "A call of a lowered method with wrong arguments raises RuntimeError.",
        "It raises an error that is both a RuntimeError and a TypeError.",
        "Python's own type for it is TypeError.",
    ),
    Deviation(
        "jit-unavailable-is-a-runtime-error", ("jit.to_backend", "jit.load"),
        "'Backend is not available.' is a torch.jit.Error, an Exception of no other kind.",
        "It is a RuntimeError with the same text.",
        "It can be caught without torch.",
    ),
    Deviation(
        "jit-missing-file-not-found", ("jit.load",),
        "Loading a file that does not exist raises ValueError.",
        "It raises FileNotFoundError.",
        "That is Python's own type for it.",
    ),
    # ---- the launcher -----------------------------------------------------------
    Deviation(
        "launcher-exit-code", ("xeon.run_cpu",),
        "The launcher exits with 0 also when the program that it started failed.",
        "It exits with the exit code of the first instance that failed, 128 + N where signal N ended it.",
        "A job that failed would pass for one that went well.",
    ),
    Deviation(
        "launcher-refuses-misuse", ("xeon.run_cpu",),
        "With too few cores for one instance nothing is started, and the exit code is 0; a count of 0 divides"
        " by zero; other mistakes end in a traceback and 1, or in 255.",
        "Each raises RuntimeError, ValueError or KeyError; the command prints one line, and exits with 2.",
        "A launch that starts nothing is no success.",
    ),
    Deviation(
        "launcher-checks-core-lists", ("xeon.run_cpu",),
        "--core-list may name a core twice, and fewer instances than --ninstances are started where it is"
        " too short.",
        "Both are refused.",
        "Instances would share a core, or be missing, and nobody would know.",
    ),
    Deviation(
        "launcher-drops-no-option", ("xeon.run_cpu",),
        "Beside --core-list, --ninstances 1 and the modes are dropped without a word; --skip-cross-node-cores"
        " counts with some options alone.",
        "They count, or a warning says that they do not.",
        "An option that has no effect should say so.",
    ),
    Deviation(
        "launcher-runs-modules", ("xeon.run_cpu",),
        "--module is refused, since it asks for --no-python, which refuses it.",
        "It runs the module as python -m does.",
        "That is what its help says.",
    ),
    Deviation(
        "launcher-passes-arguments", ("xeon.run_cpu",),
        "Options behind the program are parsed too: one that abbreviates an option of the launcher ends it"
        " with 2, and a -- may vanish.",
        "What stands behind the program is the program's.",
        "A launcher must not change what it launches.",
    ),
    Deviation(
        "launcher-knows-every-topology", ("xeon.run_cpu.CPUinfo",),
        "More than ten nodes, nodes of different sizes, nodes without cores, cores that are off and cores"
        " whose number is not that of a CPU are miscounted, or raise ValueError.",
        "They are counted as the system has them.",
        "Programs would be bound to CPUs that are not there, or left without some.",
    ),
    Deviation(
        "launcher-keeps-to-its-cpus", ("xeon.run_cpu",),
        "All CPUs of the machine are dealt out, also those that an affinity mask or a cpuset keeps from this"
        " process.",
        "Those that the process may use are dealt out; asking for another is a KeyError.",
        "In a container or below a scheduler the launch would fail, or take others' cores.",
    ),
    Deviation(
        "launcher-instances-stay-on-a-node", ("xeon.run_cpu",),
        "In throughput mode instances span nodes where those are uneven.",
        "Each has one node; the cores that are left over are reported.",
        "That is what the mode is for.",
    ),
    Deviation(
        "launcher-instances-share-no-core", ("xeon.run_cpu",),
        "With --use-logical-core two instances get the hyper-threads of the same cores.",
        "Each gets whole cores where the counts allow it.",
        "They would slow each other down.",
    ),
    Deviation(
        "launcher-binds-by-itself", ("xeon.run_cpu",),
        "Without numactl, and with --disable-taskset, the launcher exits with 255; numactl counts as missing"
        " where it may not bind to core 0 and node 0.",
        "It tries the cores and nodes that are asked for, with numactl, then taskset, then by itself.",
        "Binding needs no tool; and a container may be without core 0.",
    ),
    Deviation(
        "launcher-threads-of-a-rank", ("xeon.run_cpu",),
        "Below torchrun OMP_NUM_THREADS counts the cores of the whole instance.",
        "It counts the cores that are left for the rank.",
        "Every rank would start as many threads as all of them should.",
    ),
    Deviation(
        "launcher-iomp-affinity", ("xeon.run_cpu",),
        "--use-logical-core leaves KMP_AFFINITY out, also in the modes, which use physical cores only.",
        "It is set there.",
        "Threads would wander.",
    ),
    Deviation(
        "launcher-keeps-preloads", ("xeon.run_cpu",),
        "A library in LD_PRELOAD without a slash is dropped.",
        "It stays.",
        "The loader finds it.",
    ),
)  # fmt: skip

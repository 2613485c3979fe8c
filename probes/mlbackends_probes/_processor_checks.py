"""The same as _checks.py for libraries that compute on processors, or that send messages."""

import os
import re
import sys
from collections.abc import Callable
from threading import Thread

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.base.tables import table
from mlbackends.libraries.blas_symbols import (
    fortran_integer,
    openblas_affixes,
    require_equal,
    require_product,
)
from mlbackends.libraries.c_calls import Calls, ctypes
from mlbackends.libraries.c_runtime import returned_string
from mlbackends.libraries.library_names import stem_of
from mlbackends.model.records import Answer, FactValue, Library, nonempty
from mlbackends_probes._findings import FFTW_PRECISIONS, mkl_kernels, most_openblas_threads


def load_acl(call: Calls, library: Library) -> Answer:
    """Ask for the build, and make a context on the processor."""

    class Version(ctypes.Structure):
        _fields_ = (
            *((part, ctypes.c_int) for part in ("major", "minor", "patch")),
            ("build", ctypes.c_char_p),
        )

    facts = {}
    if call.has("AclVersionInfo"):
        call.opened.AclVersionInfo.restype = ctypes.POINTER(Version)
        if address := call.opened.AclVersionInfo():
            version = address.contents
            facts["interface_version"] = f"{version.major}.{version.minor}.{version.patch}"
            facts["build"] = build = (version.build or b"").decode(errors="replace").strip()
            if release := re.search(r"arm_compute_version=v?(\d+(?:\.\d+)*)", build):
                library = replace(library, version=release[1])
    call.learned = answer = Answer(library, facts=nonempty(facts))
    if call.has("AclCreateContext"):
        processor = 0
        call.create("AclCreateContext", processor, None)
    return answer


def load_blis(call: Calls, library: Library) -> Answer:
    """Ask how it was built and which kernels it chose."""
    facts: dict[str, FactValue] = {}
    version = call.text("bli_info_get_version_str").strip()
    if call.has("bli_arch_query_id") and call.has("bli_arch_string"):
        name = call.text("bli_arch_string", call.status("bli_arch_query_id"))
        facts |= {"architecture": name} if name else {}
    for kind in ("openmp", "pthreads"):
        if (is_enabled := call.number(f"bli_info_get_enable_{kind}", -1)) >= 0:
            facts.setdefault("threading", "serial")
            if is_enabled:
                facts["threading"] = kind
                break
    if call.has("bli_thread_get_num_threads"):
        call.opened.bli_thread_get_num_threads.restype = ctypes.c_int64
        # -1 is "not set", which is one thread.
        facts["threads"] = max(1, int(call.opened.bli_thread_get_num_threads()))
    if (bits := call.number("bli_info_get_blas_int_type_size", 0)) in (32, 64):
        facts["integer_bits"] = bits
    return Answer(replace(library, version=version or library.version), facts=facts)


def use_blis(call: Calls, _: Library) -> None:
    """Multiply two matrices, where it has BLAS's names."""
    if not call.has("dgemm_"):
        message = "it was built without BLAS's function names, so nothing was computed"
        raise NotUsable("no-use-check", message)
    require_product(call.opened)


def use_fbgemm(call: Calls, _: Library) -> None:
    """Ask whether the processor is good enough, and round numbers to bfloat16."""
    # C++ functions of the namespace fbgemm, as the Itanium ABI writes them.
    convert = call.opened["_ZN6fbgemm20FloatToBfloat16_simdEPKfPtm"]
    supported = call.opened["_ZN6fbgemm18fbgemmSupportedCPUEv"]
    supported.restype = ctypes.c_bool
    if not supported():
        message = "fbgemmSupportedCPU returned false: this processor has no AVX2"
        raise NotUsable("unsupported-hardware", message)
    numbers = (ctypes.c_float * 4)(1.0, -2.5, 0.0, 3.0)
    rounded = (ctypes.c_uint16 * 4)()
    convert(numbers, rounded, ctypes.c_size_t(4))
    right = [0x3F80, 0xC020, 0.0, 0x4040]
    require_equal("FloatToBfloat16_simd", [float(number) for number in rounded], right)


def load_fftw(call: Calls, library: Library) -> Answer:
    """Read the version, which is a variable and not a function."""
    prefix, _ = FFTW_PRECISIONS[stem_of(os.path.basename(library.path))]
    try:
        variable = (ctypes.c_char * 8).in_dll(call.opened, f"{prefix}_version")
    except ValueError:
        message = f"{library.path} has no variable {prefix}_version"
        raise NotUsable("missing-symbol", message) from None
    # An array of unknown length that ends in NUL.
    text = ctypes.string_at(ctypes.addressof(variable)).decode(errors="replace")
    version, *rest = text.removeprefix(f"{prefix}-").removeprefix("fftw-").split("-")
    facts = nonempty({**library.facts, "instruction_sets": rest})
    if re.fullmatch(r"\d+(\.\d+)*\w*", version):
        library = replace(library, version=version)
    return Answer(library, facts=facts)


def use_fftw(call: Calls, library: Library) -> None:
    """Transform 1, 0, 0, 0."""
    prefix, precision = FFTW_PRECISIONS[stem_of(os.path.basename(library.path))]
    kinds = {"double": "c_double", "float": "c_float", "long double": "c_longdouble"}
    if precision not in kinds:
        raise NotUsable("no-use-check", f"Python has no type for {precision} precision")
    real = getattr(ctypes, kinds[precision])
    signal = (real * 8)(1, 0, 0, 0, 0, 0, 0, 0)  # four complex numbers
    spectrum = (real * 8)()
    plan_of = getattr(call.opened, f"{prefix}_plan_dft_1d")
    plan_of.restype = ctypes.c_void_p
    forward, estimate = -1, ctypes.c_uint(1 << 6)
    plan = plan_of(4, signal, spectrum, forward, estimate)
    if not plan:
        raise NotUsable("call-failed", f"{prefix}_plan_dft_1d returned no plan")
    getattr(call.opened, f"{prefix}_execute")(ctypes.c_void_p(plan))
    require_equal(f"{prefix}_execute", [float(number) for number in spectrum], [1.0, 0.0] * 4)


def load_flexiblas(call: Calls, library: Library) -> Answer:
    """Ask for the version, and for the backend that it chose."""
    numbers = [ctypes.c_int(-1) for _ in range(3)]
    call.status("flexiblas_get_version", *map(ctypes.byref, numbers))
    if all(number.value >= 0 for number in numbers):
        library = replace(library, version=".".join(str(number.value) for number in numbers))
    name = ctypes.create_string_buffer(1024)
    size = ctypes.c_size_t(len(name))
    facts: dict[str, FactValue] = {}
    if call.status("flexiblas_current_backend", name, size) > 0:
        facts["backend"] = name.value.decode(errors="replace")
    if call.has("flexiblas_list"):
        backends = []
        count = call.status("flexiblas_list", None, ctypes.c_size_t(0), ctypes.c_ssize_t(0))
        for i in range(min(count, 64)):
            call.status("flexiblas_list", name, size, ctypes.c_ssize_t(i))
            backends.append(name.value.decode(errors="replace"))
        # __FALLBACK__ is its own, and left out by its command line tool too.
        facts["backends"] = [backend for backend in backends if backend and backend != "__FALLBACK__"]
    return Answer(library, facts=nonempty(facts))


def use_flexiblas(call: Calls, _: Library) -> None:
    """Multiply two matrices."""
    require_product(call.opened)


def use_nnpack(call: Calls, _: Library) -> None:
    """Initialise it, and convolve a 3x3 image with a 2x2 kernel of ones, on the calling thread."""
    unsupported_hardware = 51
    if (status := call.status("nnp_initialize")) == unsupported_hardware:
        raise NotUsable(
            "unsupported-hardware",
            "nnp_initialize returned 51 (unsupported hardware): on x86 it needs AVX2, FMA3 and"
            " a level-3 cache that it can see",
            "in a virtual machine, pass the host's caches on (libvirt: <cache mode='passthrough'/>)",
        )
    if status:
        raise call.failed("nnp_initialize", status)
    if not call.has("nnp_convolution_inference"):
        raise NotUsable("no-use-check", "it hides its convolutions, so nothing was computed")

    class Size(ctypes.Structure):
        _fields_ = (("width", ctypes.c_size_t), ("height", ctypes.c_size_t))

    class Padding(ctypes.Structure):
        _fields_ = tuple((side, ctypes.c_size_t) for side in ("top", "right", "bottom", "left"))

    image = (ctypes.c_float * 9)(*range(1, 10))
    kernel = (ctypes.c_float * 4)(1, 1, 1, 1)
    bias = (ctypes.c_float * 1)(10)
    output = (ctypes.c_float * 4)()
    matrix_product, compute, identity = 4, 1, 0
    call(
        "nnp_convolution_inference",
        *(matrix_product, compute, ctypes.c_size_t(1), ctypes.c_size_t(1)),
        *(Size(3, 3), Padding(0, 0, 0, 0), Size(2, 2), Size(1, 1)),
        *(image, kernel, bias, output, None, None, identity, None, None, None),
    )
    require_equal("nnp_convolution_inference", list(output), [22.0, 26.0, 34.0, 38.0])


def use_qnnpack(call: Calls, _: Library) -> None:
    """Clamp numbers to a range, on the calling thread."""
    prefix = "qnnp" if call.has("qnnp_initialize") else "pytorch_qnnp"
    unsupported_hardware = 4

    def done(name: str, *arguments: object) -> None:
        call.require(f"{prefix}_{name}", *arguments, unsupported=unsupported_hardware)

    numbers = (ctypes.c_uint8 * 4)(0, 10, 100, 255)
    clamped = (ctypes.c_uint8 * 4)()
    operator = ctypes.c_void_p()
    one, count = ctypes.c_size_t(1), ctypes.c_size_t(len(numbers))
    limits, flags = (ctypes.c_uint8(5), ctypes.c_uint8(200)), ctypes.c_uint32(0)
    done("initialize")
    done("create_clamp_nc_u8", count, *limits, flags, ctypes.byref(operator))
    done("setup_clamp_nc_u8", operator, one, numbers, count, clamped, count)
    done("run_operator", operator, None)
    right = [5.0, 10.0, 100.0, 200.0]
    require_equal(f"{prefix}_run_operator", [float(number) for number in clamped], right)


def load_tbb(call: Calls, library: Library) -> Answer:
    """Ask for the version."""
    facts: dict[str, FactValue] = {"interface_version": call.status("TBB_runtime_interface_version")}
    if call.has("TBB_runtime_version"):
        library = replace(library, version=call.text("TBB_runtime_version") or library.version)
    return Answer(library, facts=facts)


def load_xnnpack(call: Calls, _: Library) -> None:
    """Initialise it, which looks at the processor and chooses kernels."""
    unsupported_hardware = 5
    call.require("xnn_initialize", None, unsupported=unsupported_hardware)


def load_ggml(call: Calls, library: Library) -> Answer | None:
    """Ask the version, where it has a function for that."""
    if not call.has("ggml_version"):
        return None
    return Answer(replace(library, version=call.text("ggml_version")), facts=library.facts)


def load_blas(call: Calls, library: Library) -> Answer:
    """Return LAPACK's version; BLAS has none."""
    facts: dict[str, FactValue] = {**library.facts}
    if call.has("ilaver_"):
        parts = [fortran_integer()() for _ in range(3)]
        call.opened.ilaver_(*map(ctypes.byref, parts))
        numbers = [part.value for part in parts]
        if 0 < numbers[0] < 100 and max(numbers) < 1000:
            version = ".".join(map(str, numbers))
            facts["lapack_version"] = version
            if stem_of(os.path.basename(library.path)).startswith("liblapack"):
                library = replace(library, version=version)
    return Answer(library, facts=facts)


def use_blas(call: Calls, library: Library) -> Answer:
    """Compute with whichever of the three interfaces the file has."""
    if call.has("dgemm_") or call.has("cblas_dgemm"):
        require_product(call.opened)
    elif call.has("dgesv_"):  # solve 2x = 2 and 4y = 8
        integer = fortran_integer()
        matrix, right = (ctypes.c_double * 4)(2, 0, 0, 4), (ctypes.c_double * 2)(2, 8)
        pivots, info = (integer * 2)(), integer()
        two, one = ctypes.byref(integer(2)), ctypes.byref(integer(1))
        call.opened.dgesv_(two, one, matrix, two, pivots, right, two, ctypes.byref(info))
        if info.value:
            raise NotUsable("call-failed", f"dgesv returned info {info.value}")
        require_equal("dgesv", list(right), [1.0, 2.0])
    else:
        raise NotUsable("no-use-check", "it has neither dgemm_ nor cblas_dgemm nor dgesv_")
    return Answer(library)


#: By the numbers of mkl_service.h, MKL_THREADING_INTEL to MKL_THREADING_TBB.
_MKL_LAYERS = ("intel", "sequential", "pgi", "gnu", "tbb")


def load_mkl(call: Calls, library: Library) -> Answer:
    """Ask for the version."""
    buffer = ctypes.create_string_buffer(512)
    call.opened.MKL_Get_Version_String(buffer, len(buffer) - 1)
    text = buffer.value.decode(errors="replace").strip()
    build = re.search(r"Build (\d{8})", text)
    facts = nonempty({"version_text": text, "build": build and build[1]})
    version = re.search(r"Version (\d+(?:\.\d+)*(?: Update \d+)?)", text)
    return Answer(replace(library, version=version[1]) if version else library, facts=facts)


def use_mkl(call: Calls, library: Library) -> Answer:
    """Multiply two matrices, and see which kernels were used."""
    # mkl_rt has GNU's and Intel's Fortran names; on Windows they have no underscore.
    require_product(call.opened, "dgemm" if sys.platform == "win32" else "dgemm_")
    facts: dict[str, FactValue] = {}
    for name in ("MKL_Get_Max_Threads", "mkl_get_max_threads"):
        if call.has(name):
            facts["max_threads"] = int(getattr(call.opened, name)())
            break
    if call.has("MKL_Set_Threading_Layer"):
        layer = int(call.opened.MKL_Set_Threading_Layer(-1))  # an invalid layer changes nothing
        facts |= {"threading": _MKL_LAYERS[layer]} if layer in range(len(_MKL_LAYERS)) else {}
    try:  # what this process, the child that runs the check, has mapped (Linux)
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            names = [os.path.basename(line.rstrip()) for line in file if "libmkl_" in line]
    except OSError:
        names = []
    return Answer(library, facts=nonempty({**facts, "kernels_used": mkl_kernels(names)}))


_MPI_VERSIONS = (
    (r"Open MPI v?(\d[\w.]*)", "openmpi"),
    (r"Intel\(R\) MPI Library (\d[\w.]*)", "intel"),
    (r"MPICH Version:\s*(\d[\w.]*)", "mpich"),
    (r"MVAPICH\d? Version\s*:\s*(\d[\w.]*)", "mpich"),
)


_MPI_TEXT_BYTES = 16384  # MPICH's limit for the text is 8192, Open MPI's 256


def load_mpi(call: Calls, library: Library) -> Answer:
    """Return the versions, which need no MPI_Init."""
    text_buffer, length = ctypes.create_string_buffer(_MPI_TEXT_BYTES), ctypes.c_int()
    call("MPI_Get_library_version", text_buffer, ctypes.byref(length))
    standard = ".".join(map(str, call.numbers("MPI_Get_version", 2)))
    text = text_buffer.value.decode(errors="replace").strip()
    facts = {
        **library.facts,
        "standard": standard,
        "library_version": text.partition("\n")[0].strip(),
    }
    for pattern, name in _MPI_VERSIONS:
        if version := re.search(pattern, text):
            facts["implementation"] = name
            library = replace(library, version=version[1])
            break
    return Answer(library, facts=nonempty(facts))


_ONEDNN_IN_TORCH = "_ZN2at18get_mkldnn_version"


def load_onednn(call: Calls, library: Library) -> Answer:
    """Ask for the version, the runtimes and the instruction set that is in effect."""
    for prefix in ("dnnl", "mkldnn"):
        if call.has(f"{prefix}_version"):
            return _described_onednn(call, library, prefix)
    text = returned_string(call.opened, _ONEDNN_IN_TORCH) or ""
    version = re.search(r"v(\d+\.\d+\.\d+)", text)
    if version is None:
        return Answer(library)
    commit = re.search(r"Git Hash ([0-9a-f]{7,40})", text)
    facts = nonempty({"commit": commit and commit[1]})
    return Answer(replace(library, version=version[1]), facts=facts)


def _described_onednn(call: Calls, library: Library, prefix: str) -> Answer:
    class Version(ctypes.Structure):
        _fields_ = (
            *((part, ctypes.c_int) for part in ("major", "minor", "patch")),
            ("hash", ctypes.c_char_p),
            ("cpu_runtime", ctypes.c_uint),
            ("gpu_runtime", ctypes.c_uint),
        )

    function = getattr(call.opened, f"{prefix}_version")
    function.restype = ctypes.POINTER(Version)
    address = function()
    if not address:
        raise NotUsable("call-failed", f"{prefix}_version returned no address")
    version = address.contents
    library = replace(library, version=f"{version.major}.{version.minor}.{version.patch}")
    facts = {}
    if version.hash and re.fullmatch(rb"[0-9a-f]{7,40}", version.hash):
        facts["commit"] = version.hash.decode()
    for name in ("cpu_runtime", "gpu_runtime") if version.major > 1 else ():
        # Version 1 ended with the hash.
        facts[name] = table("libraries/onednn")["runtimes"].get(hex(getattr(version, name)), "")
    warnings: tuple[Reason, ...] = ()
    if call.has(f"{prefix}_get_effective_cpu_isa"):
        bits = int(getattr(call.opened, f"{prefix}_get_effective_cpu_isa")())
        levels: dict[str, str] = table("libraries/onednn")["instruction_sets"]
        name = next((word.lower() for word, level in levels.items() if int(level, 16) == bits), "")
        if call.has(f"{prefix}_cpu_isa2str"):
            own = call.text(f"{prefix}_cpu_isa2str", bits).removeprefix("cpu_isa_")
            name = "" if own.startswith("unknown") else own
        facts["instruction_set"] = name
        warnings = _other_isa(bits, name) if name else ()
    return Answer(library, facts=nonempty(facts), warnings=warnings)


def _other_isa(effective: int, name: str) -> tuple[Reason, ...]:
    """Warn if a variable requests another instruction set than the one in effect."""
    names = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
    variable = next((name for name in names if os.environ.get(name)), "")
    value = os.environ.get(variable, "")
    level = table("libraries/onednn")["instruction_sets"].get(value.upper())
    if level is None:
        return ()
    mask = int(level, 16)
    if effective & ~mask:
        message = f"{variable} is {value}, and oneDNN uses {name} nevertheless"
        return (Reason("override-invalid", message, "this build or version ignores it"),)
    if mask & ~effective:
        message = f"{variable} is {value}, and the highest that oneDNN uses here is {name}"
        return (Reason("override-exceeds-hardware", message),)
    return ()


def use_onednn(call: Calls, library: Library) -> Answer:
    """Compute, where its functions can be reached."""
    if not call.has("dnnl_engine_create"):
        file = os.path.basename(library.path)
        message = f"{file} hides oneDNN's functions, so nothing was computed"
        if not library.version:
            message += "; it returns its version as a C++ string, which can be received on x86-64 Linux only"
        raise NotUsable("no-use-check", message)
    if _described_onednn(call, library, "dnnl").facts.get("cpu_runtime") == "sycl":
        message = "its CPU runtime is SYCL, which needs an OpenCL device; nothing was computed"
        raise NotUsable("no-use-check", message)

    def described(shape: tuple[int, int], strides: tuple[int, int]) -> object:
        pair = ctypes.c_int64 * 12
        rest = (2, pair(*shape), 3, pair(*strides))  # two dimensions, 32-bit floats
        if call.has("dnnl_memory_desc_create_with_strides"):
            return call.create("dnnl_memory_desc_create_with_strides", *rest)
        structure = ctypes.create_string_buffer(16384)
        call("dnnl_memory_desc_init_by_strides", structure, *rest)
        return structure

    engine = call.create("dnnl_engine_create", 1, ctypes.c_size_t(0))
    stream = call.create("dnnl_stream_create", engine, ctypes.c_uint(1))
    left = (ctypes.c_float * 6)(1, 2, 3, 4, 5, 6)
    right = (ctypes.c_float * 6)(7, 8, 9, 10, 11, 12)
    rows = described((2, 3), (3, 1))
    if call.has("dnnl_matmul_primitive_desc_create"):  # multiply 2x3 by 3x2
        other, into = described((3, 2), (2, 1)), described((2, 2), (2, 1))
        operation = call.create("dnnl_matmul_primitive_desc_create", engine, rows, other, None, into, None)
        result, expected = (ctypes.c_float * 4)(), [58.0, 64.0, 139.0, 154.0]
        operands = [(1, rows, left), (33, other, right), (17, into, result)]
    else:  # before version 3, whose descriptors are structures, transpose 2x3
        into = described((2, 3), (1, 2))
        operation = call.create("dnnl_reorder_primitive_desc_create", rows, engine, into, engine, None)
        result, expected = (ctypes.c_float * 6)(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
        operands = [(1, rows, left), (17, into, result)]

    class Operand(ctypes.Structure):
        _fields_ = (("which", ctypes.c_int), ("memory", ctypes.c_void_p))

    memories = [(operand, call.create("dnnl_memory_create", md, engine, at)) for operand, md, at in operands]
    arguments = (Operand * len(memories))(*[Operand(*memory) for memory in memories])
    primitive = call.create("dnnl_primitive_create", operation)
    call("dnnl_primitive_execute", primitive, stream, len(memories), arguments)
    call("dnnl_stream_wait", stream)
    require_equal("a primitive", list(result), expected)
    return Answer(library)


def load_openblas(call: Calls, library: Library) -> Answer:
    """Ask how it was built and which kernels it chose."""
    affixes = openblas_affixes(call.opened)
    if affixes is None:
        raise NotUsable("missing-symbol", f"{library.path} has no function openblas_get_config")
    before, after = affixes
    config, core_name, threads_name, parallel_name = (
        f"{before}openblas_get_{name}{after}" for name in ("config", "corename", "num_threads", "parallel")
    )
    text = " ".join(call.text(config).split())
    core = call.text(core_name) if call.has(core_name) else ""
    threads, kind = (call.status(name) if call.has(name) else -1 for name in (threads_name, parallel_name))
    facts = {
        "config": text,
        "architecture": core,
        "threading": {0: "serial", 1: "pthreads", 2: "openmp"}.get(kind),
        "threads": threads if threads > 0 else None,
        "built_for_threads": most_openblas_threads(text),
        "integer_bits": 64 if "USE64BITINT" in text or after == "64_" else 32,
        "symbol_prefix": before,
        "symbol_suffix": after,
    }
    if version := re.match(r"OpenBLAS (\S+)", text):
        library = replace(library, version=version[1])
    requested = os.environ.get("OPENBLAS_CORETYPE", "")
    if not requested or not core or requested.lower() == core.lower():
        return Answer(library, facts=nonempty(facts))
    message = f"OPENBLAS_CORETYPE is {requested!r}, and OpenBLAS uses the kernels for {core}"
    hint = "the build has no kernels of that name, or this processor cannot run them"
    warning = Reason("override-invalid", message, hint)
    return Answer(library, facts=nonempty(facts), warnings=(warning,))


def use_openblas(call: Calls, _: Library) -> None:
    """Multiply two matrices."""
    before, after = openblas_affixes(call.opened) or ("", "")
    # A suffix goes after the underscore that Fortran's names end with: dgemm_64_.
    require_product(call.opened, f"{before}dgemm_{after}", 64 if after else 32)


def load_openmp(call: Calls, library: Library) -> Answer:
    """Return its version, and its view of the machine."""
    opened = call.opened
    if hasattr(opened, "__kmpc_fork_call"):  # LLVM's or Intel's
        os.environ["KMP_VERSION"] = "1"  # read, and answered on stderr, at the first call
    printed = _printed(opened.omp_get_max_threads)
    threads, processors = int(opened.omp_get_max_threads()), int(opened.omp_get_num_procs())
    if hasattr(opened, "omp_display_env"):
        printed += _printed(lambda: opened.omp_display_env(0))
    date = re.search(r"_OPENMP\s*=\s*'(\d{6})'|API version:.*\((\d{6})\)", printed)
    version = re.search(r"Intel\(R\) OMP version: (\d+\.\d+\.\d{8})", printed)
    if version and not version[1].endswith("20140926"):
        library = replace(library, version=version[1])
    facts = {
        **library.facts,
        "max_threads": threads if threads > 0 else None,
        "processors": processors if processors > 0 else None,
        "specification_date": int(date[1] or date[2]) if date else None,
    }
    return Answer(library, facts=nonempty(facts))


def _printed(call: Callable[[], object]) -> str:
    """Return what a call writes to stderr."""
    reading, writing = os.pipe()
    pieces: list[bytes] = []

    def read() -> None:
        while piece := os.read(reading, 65536):
            pieces.append(piece)

    before, reader = os.dup(2), Thread(target=read, daemon=True)
    reader.start()
    os.dup2(writing, 2)
    try:
        call()
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(writing)
    reader.join(1)  # what the library started may still hold the pipe
    return b"".join(pieces).decode(errors="replace")


def use_openmp(call: Calls, _: Library) -> None:
    """Run a parallel region, which compilers make of a function and a call of the runtime."""
    opened, pairs = call.opened, list[tuple[int, int]]()

    def body(*_: object) -> None:
        pairs.append((opened.omp_get_thread_num(), opened.omp_get_num_threads()))

    if hasattr(opened, "__kmpc_fork_call"):

        class Place(ctypes.Structure):
            """The ident_t, the place of a region in the source."""

            _fields_ = (("numbers", ctypes.c_int32 * 4), ("source", ctypes.c_char_p))

        numbers = (ctypes.c_int32 * 4)(0, 2, 0, 0)
        place = ctypes.byref(Place(numbers, b";unknown;unknown;0;0;;"))
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(body)
        number, limit, fork = (
            getattr(opened, f"__kmpc_{name}")
            for name in ("global_thread_num", "push_num_threads", "fork_call")
        )
        limit(place, number(place), 2)
        fork(place, 0, region)
    elif hasattr(opened, "_vcomp_fork"):
        opened._vcomp_set_num_threads(2)  # noqa: SLF001  so Microsoft names it
        opened._vcomp_fork(1, 0, ctypes.CFUNCTYPE(None)(body))  # noqa: SLF001
    else:
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)
        opened.GOMP_parallel(region, None, 2, 0)
    threads = len(pairs)
    # Fewer than two are right if OMP_THREAD_LIMIT or OMP_DYNAMIC demands it.
    if not pairs or sorted(pairs) != [(number, threads) for number in range(threads)]:
        message = f"a parallel region of two threads ran as (number, of how many) {sorted(pairs)}"
        raise NotUsable("wrong-result", message)

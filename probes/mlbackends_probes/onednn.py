"""oneDNN: primitives for deep learning on processors, of oneAPI.

Finds:    every libdnnl and libmkldnn, in wheels, the interpreter's prefix, conda, DNNLROOT and the
          loader's cache; the copy inside torch.
Usable:   a matrix product of floats is right (before version 3: a transposition).
Caveats:  torch hides oneDNN's functions, so of that copy only the version is told, and only where
          a C++ string can be received: on x86-64 with Linux. Copies inside other frameworks have
          no functions that could be asked.
Source:   oneDNN developer guide: dnnl_version, dnnl_get_effective_cpu_isa, CPU dispatcher control.
"""

import os
import re
from collections.abc import Callable  # noqa: TC003

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import anything, not_valid, one_of, steering, whole
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.c_runtime import returned_string
from mlbackends.libraries.search import absent, inside, libraries_named
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact("commit", str, "The source's commit, as the library tells it."),
    Fact(
        "cpu_runtime",
        str,
        "Where its threads come from: openmp, tbb, sequential, threadpool, sycl.",
    ),
    Fact("gpu_runtime", str, "What it reaches GPUs with: none, opencl or sycl."),
    Fact("instruction_set", str, "The highest instruction set that its kernels use here."),
    Fact("environment", dict[str, str], "The variables that steer oneDNN and are set."),
)

HOMES = ("DNNLROOT", "ONEDNN_ROOT")
_STEMS = ("libdnnl", "libmkldnn", "dnnl", "mkldnn")
_IN_TORCH = "_ZN2at18get_mkldnn_version"
_RUNTIMES = {
    0: "none",
    1: "sequential",
    2: "openmp",
    4: "tbb",
    8: "threadpool",
    0x100: "opencl",
    0x200: "sycl",
}
_STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "last implementation reached",
    5: "runtime error",
    6: "not required",
}
_ISA_BITS = {
    "SSE41": 0x1,
    "AVX": 0x3,
    "AVX2": 0x7,
    "AVX2_VNNI": 0xF,
    "AVX2_VNNI_2": 0x1F,
    "AVX512_CORE": 0x27,
    "AVX512_CORE_VNNI": 0x67,
    "AVX512_CORE_BF16": 0xE7,
    "AVX512_CORE_FP16": 0x1EF,
    "AVX10_1_512": 0x1EF,
    "AVX512_CORE_AMX": 0xFEF,
    "AVX10_1_512_AMX": 0xFEF,
    "AVX512_CORE_AMX_FP16": 0x1FEF,
    "AVX10_1_512_AMX_FP16": 0x1FEF,
}


def _isa(value: str) -> str:
    # Newer releases know more levels than any list of ours, all of them AVX10.
    known = value.upper() in (*_ISA_BITS, "ALL", "DEFAULT") or value.upper().startswith("AVX10_")
    return "" if known else "DEFAULT or one of " + ", ".join(_ISA_BITS)


_ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
VARIABLES = {
    **dict.fromkeys(_ISA_VARIABLES, _isa),
    **{
        f"{prefix}_{name}": rule
        for name, rule in {
            "CPU_ISA_HINTS": one_of("NO_HINTS", "PREFER_YMM"),
            "DEFAULT_FPMATH_MODE": one_of("STRICT", "BF16", "F16", "TF32", "ANY"),
            "PRIMITIVE_CACHE_CAPACITY": whole(),
            "VERBOSE": anything,
            "JIT_DUMP": anything,
            "JIT_PROFILE": anything,
        }.items()
        for prefix in ("ONEDNN", "DNNL")
    },
}


def find(host: Host) -> Finding:
    """Look for every copy, and what the variables ask of it."""
    root = host.env("DNNLROOT").rstrip("/")
    folders = [
        *([f"{root}/{kind}/lib" for kind in ("cpu_gomp", "cpu_iomp", "cpu_tbb")] if root else []),
        "/opt/intel/oneapi/dnnl/latest/lib",
    ]
    libraries = libraries_named(
        host, "onednn", *_STEMS, homes=HOMES, folders=folders, wheels=("paddle/libs",)
    )
    libraries += inside(host, "onednn", "libtorch_cpu", (f"{_IN_TORCH}B5cxx11Ev", f"{_IN_TORCH}Ev"))
    facts = steering(host, VARIABLES)
    if not libraries:
        return Finding(facts=facts, reasons=(absent(host, "libdnnl", HOMES, folders),))
    return Finding(libraries=tuple(libraries), facts=facts, warnings=not_valid(host, VARIABLES))


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, the runtimes and the instruction set that is in effect."""
    for prefix in ("dnnl", "mkldnn"):
        if hasattr(opened, f"{prefix}_version"):
            return _told(opened, library, prefix)
    text = returned_string(opened, _IN_TORCH)
    version = re.search(r"v(\d+\.\d+\.\d+)", text or "")
    if version is None:
        return Answer(library)
    commit = re.search(r"Git Hash ([0-9a-f]{7,40})", text or "")
    facts: dict[str, FactValue] = {"commit": commit[1]} if commit else {}
    return Answer(replace(library, version=version[1]), facts=facts)


def _told(opened: CDLL, library: Library, prefix: str) -> Answer:
    class Version(ctypes.Structure):
        _fields_ = (
            ("major", ctypes.c_int),
            ("minor", ctypes.c_int),
            ("patch", ctypes.c_int),
            ("hash", ctypes.c_char_p),
            ("cpu_runtime", ctypes.c_uint),
            ("gpu_runtime", ctypes.c_uint),
        )

    ask = getattr(opened, f"{prefix}_version")
    ask.restype = ctypes.POINTER(Version)
    address = ask()
    if not address:
        raise NotUsable("call-failed", f"{prefix}_version returned no address")
    told = address.contents
    library = replace(library, version=f"{told.major}.{told.minor}.{told.patch}")
    facts: dict[str, FactValue] = {}
    if told.hash and re.fullmatch(rb"[0-9a-f]{7,40}", told.hash):
        facts["commit"] = told.hash.decode()
    warnings: tuple[Reason, ...] = ()
    if told.major > 1:  # version 1 ended with the hash
        for name in ("cpu_runtime", "gpu_runtime"):
            if getattr(told, name) in _RUNTIMES:
                facts[name] = _RUNTIMES[getattr(told, name)]
    if hasattr(opened, f"{prefix}_get_effective_cpu_isa"):
        bits = int(getattr(opened, f"{prefix}_get_effective_cpu_isa")())
        if name := _isa_name(opened, prefix, bits):
            facts["instruction_set"] = name
            warnings = _other_isa(bits, name)
    return Answer(library, facts=facts, warnings=warnings)


def _isa_name(opened: CDLL, prefix: str, bits: int) -> str:
    name = getattr(opened, f"{prefix}_cpu_isa2str", None)
    if name is None:
        return next((word.lower() for word, known in _ISA_BITS.items() if known == bits), "")
    name.restype = ctypes.c_char_p
    name.argtypes = [ctypes.c_int]
    told = (name(bits) or b"").decode(errors="replace").removeprefix("cpu_isa_")
    return "" if told.startswith("unknown") else told


def _other_isa(effective: int, name: str) -> tuple[Reason, ...]:
    """Warn where a variable asks for another instruction set than the one that is in effect."""
    variable = next((one for one in _ISA_VARIABLES if os.environ.get(one)), "")
    value = os.environ.get(variable, "")
    wanted = _ISA_BITS.get(value.upper())
    if wanted is None:
        return ()
    if effective & ~wanted:
        message = f"{variable} is {value}, and oneDNN uses {name} all the same"
        return (Reason("override-invalid", message, "this build or version does not heed it"),)
    if wanted & ~effective:
        message = f"{variable} is {value}, and the highest that oneDNN uses here is {name}"
        return (Reason("override-exceeds-hardware", message),)
    return ()


def use(opened: CDLL, library: Library) -> Answer:
    """Compute, where its functions can be reached."""
    if not hasattr(opened, "dnnl_engine_create"):
        message = (
            f"{os.path.basename(library.path)} hides oneDNN's functions, so nothing was computed"
        )
        if not library.version:
            message += (
                "; it tells its version as a C++ string, which can be received on x86-64 Linux only"
            )
        raise NotUsable("no-use-check", message)
    if _told(opened, library, "dnnl").facts.get("cpu_runtime") == "sycl":
        message = "its CPU runtime is SYCL, which needs an OpenCL device; nothing was computed"
        raise NotUsable("no-use-check", message)
    _compute(opened)
    return Answer(library)


def _compute(opened: CDLL) -> None:
    """Multiply 2x3 by 3x2; before version 3, whose descriptors are structures, transpose 2x3."""

    def call(function: str, *arguments: object) -> None:
        status = getattr(opened, function)(*arguments)
        if status:
            message = f"{function} returned {status} ({_STATUS.get(status, 'unknown')})"
            raise NotUsable("call-failed", message)

    def made(function: str, *arguments: object) -> "ctypes.c_void_p":
        handle = ctypes.c_void_p()
        call(function, ctypes.byref(handle), *arguments)
        return handle

    def described(shape: tuple[int, int], strides: tuple[int, int]) -> object:
        pair = ctypes.c_int64 * 12
        rest = (2, pair(*shape), 3, pair(*strides))  # two dimensions, 32-bit floats
        if hasattr(opened, "dnnl_memory_desc_create_with_strides"):
            return made("dnnl_memory_desc_create_with_strides", *rest)
        structure = ctypes.create_string_buffer(16384)
        call("dnnl_memory_desc_init_by_strides", structure, *rest)
        return structure

    engine = made("dnnl_engine_create", 1, ctypes.c_size_t(0))
    stream = made("dnnl_stream_create", engine, ctypes.c_uint(1))
    left = (ctypes.c_float * 6)(1, 2, 3, 4, 5, 6)
    right = (ctypes.c_float * 6)(7, 8, 9, 10, 11, 12)
    rows = described((2, 3), (3, 1))
    if hasattr(opened, "dnnl_matmul_primitive_desc_create"):
        other, into = described((3, 2), (2, 1)), described((2, 2), (2, 1))
        plan: Callable[..., ctypes.c_void_p] = made
        what = plan("dnnl_matmul_primitive_desc_create", engine, rows, other, None, into, None)
        result, right_answer = (ctypes.c_float * 4)(), [58.0, 64.0, 139.0, 154.0]
        operands = [(1, rows, left), (33, other, right), (17, into, result)]
    else:
        into = described((2, 3), (1, 2))
        what = made("dnnl_reorder_primitive_desc_create", rows, engine, into, engine, None)
        result, right_answer = (ctypes.c_float * 6)(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
        operands = [(1, rows, left), (17, into, result)]

    class Operand(ctypes.Structure):
        _fields_ = (("which", ctypes.c_int), ("memory", ctypes.c_void_p))

    memories = [(which, made("dnnl_memory_create", md, engine, at)) for which, md, at in operands]
    handed = (Operand * len(memories))(*[Operand(which, memory) for which, memory in memories])
    primitive = made("dnnl_primitive_create", what)
    call("dnnl_primitive_execute", primitive, stream, len(memories), handed)
    call("dnnl_stream_wait", stream)
    require_equal("a primitive", list(result), right_answer)

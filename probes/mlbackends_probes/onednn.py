"""oneDNN: primitives for deep learning on processors, of oneAPI.

Finds:    every libdnnl and libmkldnn, in wheels, the interpreter's prefix, conda, DNNLROOT and the
          loader's cache; the copy inside torch.
Usable:   a matrix product of floats is right (before version 3: a transposition).
Caveats:  torch hides oneDNN's functions, so of that copy only the version is known, and only where
          a C++ string can be received: on x86-64 with Linux. Copies inside other frameworks have
          no functions that could be called.
Source:   oneDNN developer guide: dnnl_version, dnnl_get_effective_cpu_isa, CPU dispatcher control.
"""

import os
import re

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.base.tables import table
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.c_runtime import returned_string
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, Library, nonempty

_IN_TORCH = "_ZN2at18get_mkldnn_version"


LIBRARY = SharedLibrary(
    "onednn",
    ("libdnnl", "libmkldnn"),
    homes=("DNNLROOT", "ONEDNN_ROOT"),
    folders=(
        *("$DNNLROOT/cpu_gomp/lib", "$DNNLROOT/cpu_iomp/lib", "$DNNLROOT/cpu_tbb/lib"),
        "/opt/intel/oneapi/dnnl/latest/lib",
    ),
    wheels=("paddle/libs",),
    symbols=(f"{_IN_TORCH}B5cxx11Ev", f"{_IN_TORCH}Ev"),
)
find = LIBRARY.find


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, the runtimes and the instruction set that is in effect."""
    for prefix in ("dnnl", "mkldnn"):
        if hasattr(opened, f"{prefix}_version"):
            return _described(opened, library, prefix)
    text = returned_string(opened, _IN_TORCH) or ""
    version = re.search(r"v(\d+\.\d+\.\d+)", text)
    if version is None:
        return Answer(library)
    commit = re.search(r"Git Hash ([0-9a-f]{7,40})", text)
    facts = nonempty({"commit": commit and commit[1]})
    return Answer(replace(library, version=version[1]), facts=facts)


def _described(opened: CDLL, library: Library, prefix: str) -> Answer:
    class Version(ctypes.Structure):
        _fields_ = (
            *((part, ctypes.c_int) for part in ("major", "minor", "patch")),
            ("hash", ctypes.c_char_p),
            ("cpu_runtime", ctypes.c_uint),
            ("gpu_runtime", ctypes.c_uint),
        )

    function = getattr(opened, f"{prefix}_version")
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
    if hasattr(opened, f"{prefix}_get_effective_cpu_isa"):
        bits = int(getattr(opened, f"{prefix}_get_effective_cpu_isa")())
        levels: dict[str, str] = table("libraries/onednn")["instruction_sets"]
        name = next((word.lower() for word, level in levels.items() if int(level, 16) == bits), "")
        if hasattr(opened, f"{prefix}_cpu_isa2str"):
            own = Calls(opened).text(f"{prefix}_cpu_isa2str", bits).removeprefix("cpu_isa_")
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


def use(opened: CDLL, library: Library) -> Answer:
    """Compute, where its functions can be reached."""
    if not hasattr(opened, "dnnl_engine_create"):
        file = os.path.basename(library.path)
        message = f"{file} hides oneDNN's functions, so nothing was computed"
        if not library.version:
            message += "; it returns its version as a C++ string, which can be received on x86-64 Linux only"
        raise NotUsable("no-use-check", message)
    if _described(opened, library, "dnnl").facts.get("cpu_runtime") == "sycl":
        message = "its CPU runtime is SYCL, which needs an OpenCL device; nothing was computed"
        raise NotUsable("no-use-check", message)
    call = Calls(opened, "onednn", unnamed="unknown")

    def described(shape: tuple[int, int], strides: tuple[int, int]) -> object:
        pair = ctypes.c_int64 * 12
        rest = (2, pair(*shape), 3, pair(*strides))  # two dimensions, 32-bit floats
        if hasattr(opened, "dnnl_memory_desc_create_with_strides"):
            return call.create("dnnl_memory_desc_create_with_strides", *rest)
        structure = ctypes.create_string_buffer(16384)
        call("dnnl_memory_desc_init_by_strides", structure, *rest)
        return structure

    engine = call.create("dnnl_engine_create", 1, ctypes.c_size_t(0))
    stream = call.create("dnnl_stream_create", engine, ctypes.c_uint(1))
    left = (ctypes.c_float * 6)(1, 2, 3, 4, 5, 6)
    right = (ctypes.c_float * 6)(7, 8, 9, 10, 11, 12)
    rows = described((2, 3), (3, 1))
    if hasattr(opened, "dnnl_matmul_primitive_desc_create"):  # multiply 2x3 by 3x2
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

"""The compiled library: its path, its interface, and the instruction set that it uses.

ATEN_CPU_CAPABILITY lowers the instruction set as in torch: default, avx2, avx512 or, on AArch64, sve128 and
sve256, in lower case, read once. Values that torch ignores, and those above this CPU's level, are ignored.
"""

import contextlib
import ctypes
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from mlbackends.base.errors import NoBackend
from mlbackends.base.reasons import Reason

FILE = f"attention{ {'win32': '.dll', 'darwin': '.dylib'}.get(sys.platform, '.so') }"
HEADER = "attention.h"

#: The levels whose instructions multiply pairs of bfloat16: weights are rounded to it, and subnormal numbers
#: are treated as zero.
BFLOAT16_PAIRS = frozenset({"avx512_bf16", "amx_bf16", "neon_bf16", "sve256"})
#: The levels that a capability allows; capabilities of other processors have no effect.
_LEFT = {
    "default": ("baseline", "neon"),
    "avx2": ("baseline", "avx2"),
    "sve128": ("neon", "neon_bf16"),
    "sve256": ("neon", "neon_bf16", "sve256"),
}

_chosen: int | None = None


_BUILD = (
    "install a C++ compiler, then in a clone of mlbackends: pip install --force-reinstall --no-deps ."
    " (MLBACKENDS_NATIVE=require reports compiler errors)"
)
#: The hint where levels were not compiled.
NEWER_COMPILER = _BUILD.replace("a C++ compiler", "GCC 11, clang 12 or newer")
_MISSING = "its compiled library is missing: mlbackends was installed without a C++ compiler"


class NotBuilt(NoBackend):
    """The library cannot be loaded, for the reason given."""

    def __init__(self, why: str) -> None:
        reason = Reason("missing-part", why, _BUILD)
        super().__init__(f"flash_cpu cannot run here: {why}", (reason,), _BUILD)


class Abi(NamedTuple):
    """The declarations in the library's header: its version, the codes of element types, its structures."""

    version: int
    elements: dict[str, int]
    structures: dict[str, type[ctypes.Structure]]


_C_TYPES = {
    "double": ctypes.c_double,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
}


def path(name: str = FILE) -> str:
    """Return the path of the library, or of its header."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "lib", name)


def read_abi(header: str) -> Abi:
    """Read the declarations of problem.h. Structures are named without the prefix mlbackends_attention_."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    version = re.search(r"MLBACKENDS_ATTENTION_ABI (\d+)", text)
    elements = re.findall(r"MLBACKENDS_ATTENTION_([A-Z0-9]+) = (\d+)", text)
    structures: dict[str, type[ctypes.Structure]] = {}
    for name, body in re.findall(r"typedef struct mlbackends_attention_(\w+) \{(.*?)\}", text, re.DOTALL):
        fields: list[tuple[str, Any]] = []
        for kind, declared in re.findall(r"(?:const )?(\w+) ([^;]+);", body):
            c_type = _C_TYPES.get(kind) or structures.get(kind.removeprefix("mlbackends_attention_"))
            for pointer, field, count in re.findall(r"(\*?)(\w+)(?:\[(\d+)\])?", declared):
                element: Any = ctypes.c_void_p if pointer else c_type
                fields.append((field, element * int(count) if count else element))
        structures[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    numbers = {name.lower(): int(number) for name, number in elements}
    return Abi(int(version[1]) if version else 0, numbers, structures)


@cache
def abi() -> Abi:
    """Return the library's interface, read from the header next to it. Raises NotBuilt."""
    try:
        with open(path(HEADER), encoding="utf-8") as file:
            return read_abi(file.read())
    except OSError:
        raise NotBuilt(_MISSING) from None


@cache
def library() -> ctypes.CDLL:
    """Return the library, open. Raises NotBuilt."""
    file, needed = path(), abi().version
    if not os.path.isfile(file):
        raise NotBuilt(_MISSING)
    try:
        found = ctypes.CDLL(file)
        version = int(found.mlbackends_attention_abi())
    except (OSError, AttributeError) as error:
        raise NotBuilt(f"its library cannot be opened: {error}") from None
    if version != needed:
        raise NotBuilt(f"its library has the ABI version {version}; {needed} is needed")
    for names in (found.mlbackends_attention_level_name, found.mlbackends_attention_missing_level):
        names.restype, names.argtypes = ctypes.c_char_p, (ctypes.c_int32,)
    found.mlbackends_attention_level_runs.argtypes = (ctypes.c_int32,)
    sizes = ("workspace", "scratch", "gradients_workspace", "gradients_scratch")
    for name in (*sizes, "forward", "refine", "backward"):
        function = getattr(found, f"mlbackends_attention_{name}")
        more = () if name in sizes else (ctypes.c_int64, ctypes.c_int64)
        function.restype, function.argtypes = ctypes.c_int64, (ctypes.c_void_p, *more)
    return found


def compiled_levels() -> tuple[str, ...]:
    """Return the instruction sets that were compiled, the lowest first. Raises NotBuilt."""
    return _names(library().mlbackends_attention_level_name)


def missing_levels() -> tuple[str, ...]:
    """Return the instruction sets that this CPU can run but were not compiled. Raises NotBuilt."""
    return _names(library().mlbackends_attention_missing_level)


def _names(name_of: Callable[[int], bytes | None]) -> tuple[str, ...]:
    numbered = (name_of(number) for number in itertools.count())
    return tuple(name.decode() for name in itertools.takewhile(bool, numbered) if name)


def usable_levels() -> tuple[str, ...]:
    """Return the instruction sets that this CPU and system can run. Raises NotBuilt.

    The environment is ignored. The tiles of AMX are requested from the system with the first bfloat16
    problem, which is computed without them where that fails.
    """
    runs, names = library().mlbackends_attention_level_runs, compiled_levels()
    return tuple(name for number, name in enumerate(names) if runs(number))


def left_by(capability: str, usable: tuple[str, ...]) -> tuple[str, ...]:
    """Return the usable instruction sets that a value of ATEN_CPU_CAPABILITY allows, the lowest first."""
    left = _LEFT.get(capability, ())
    return tuple(name for name in usable if name in left) or usable


def level() -> int:
    """Return the number of the instruction set in use. Raises NotBuilt."""
    return _default_level() if _chosen is None else _chosen


@cache
def _default_level() -> int:
    left = left_by(os.environ.get("ATEN_CPU_CAPABILITY", ""), usable_levels())
    return compiled_levels().index(left[-1])


@contextlib.contextmanager
def lowered(name: str) -> Iterator[None]:
    """Use another instruction set of this CPU in this process, within the block. Raises ValueError."""
    global _chosen  # noqa: PLW0603  process-wide, like the environment variable
    names = compiled_levels()
    if name not in names or not library().mlbackends_attention_level_runs(names.index(name)):
        raise ValueError(f"this CPU cannot run {name!r}; it runs {', '.join(usable_levels())}")
    before, _chosen = _chosen, names.index(name)
    try:
        yield
    finally:
        _chosen = before

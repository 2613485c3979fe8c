"""The compiled library: where it lies, which instruction set it uses, and the layout of a problem.

ATEN_CPU_CAPABILITY lowers the instruction set as in torch: default, avx2, avx512 or, on AArch64, sve256, in
lower case, read once. A value that torch would ignore is ignored, and so is one beyond what this CPU has.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from mlbackends.switches import store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE = "attention.so"
#: MLBACKENDS_ATTENTION_ABI of problem.h.
ABI = 5
#: The fields of mlbackends_attention_problem, in its order; see problem.h.
PROBLEM = struct.Struct("=7Q 8q 16q q d d Q q 5i 4x")
#: Where some of them lie, and how they are written.
WORKSPACE, THREADS = (6 * 8, struct.Struct("=Q")), (PROBLEM.size - 8, struct.Struct("=i"))
SEED = ((7 + 8 + 16 + 3) * 8, struct.Struct("=Q"))
REFINED, LEVEL = (
    (PROBLEM.size + 5 * 8, struct.Struct("=Q")),
    (PROBLEM.size - 12, struct.Struct("=i")),
)
#: What mlbackends_attention_gradients has behind its problem.
GRADIENTS = struct.Struct("=6Q 16q")
#: The fields of mlbackends_attention_owner and mlbackends_attention_layout; see planned.h.
OWNER, LAYOUT = struct.Struct("=QqQ"), struct.Struct("=4q 4q Q q")
#: What mlbackends_attention_plan has behind its owner; mlbackends_attention_call and
#: mlbackends_attention_gradients_call behind their problems.
PLAN, CALL, GRADIENTS_CALL = struct.Struct("=3Q 6q"), struct.Struct("=2d"), struct.Struct("=2d q")
ELEMENTS = {"float32": 1, "float16": 2, "bfloat16": 3, "float64": 4, "bool": 5}

#: The levels whose instructions multiply pairs of bfloat16: weights are rounded to it, and subnormal numbers are taken
#: for zero.
BFLOAT16_PAIRS = frozenset({"avx512_bf16", "amx_bf16", "neon_bf16", "sve256"})
#: The levels that a capability leaves; of another processor's none is here, and it counts for nothing.
_LEFT = {
    "default": ("baseline", "neon"),
    "avx2": ("baseline", "avx2"),
    "sve256": ("neon", "neon_bf16", "sve256"),
}

_chosen: int | None = None


class NotBuilt(Exception):
    """There is no library to load; its text says why."""


def path() -> str:
    """Return where the library lies if it was built."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib", FILE)


@cache
def library() -> ctypes.CDLL:
    """Return the library, open. Raises NotBuilt."""
    file = path()
    if not os.path.isfile(file):
        raise NotBuilt("its library is not there: it was installed without a C++ compiler")
    try:
        found = ctypes.CDLL(file)
        abi = int(found.mlbackends_attention_abi())
    except (OSError, AttributeError) as error:
        raise NotBuilt(f"its library cannot be opened: {error}") from None
    if abi != ABI:
        raise NotBuilt(f"its library is another version's: it says {abi}, {ABI} is needed")
    found.mlbackends_attention_level_name.restype = ctypes.c_char_p
    found.mlbackends_attention_level_name.argtypes = (ctypes.c_int32,)
    found.mlbackends_attention_level_runs.argtypes = (ctypes.c_int32,)
    asking = ("workspace", "scratch", "gradients_workspace", "gradients_scratch")
    for name in (*asking, "forward", "refine", "backward"):
        function = getattr(found, f"mlbackends_attention_{name}")
        more = () if name in asking else (ctypes.c_int64, ctypes.c_int64)
        function.restype, function.argtypes = ctypes.c_int64, (ctypes.c_char_p, *more)
    return found


class _Method(ctypes.Structure):
    """PyMethodDef, of Python's stable ABI."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x80


@cache
def _planned() -> _Method:
    address = ctypes.cast(planning().mlbackends_attention_planned, ctypes.c_void_p)
    return _Method(b"planned", address.value, _FASTCALL, None)


def planned(plan: bytes) -> Callable[[Any, Any, Any, Any, Any, Any], Any]:
    """Return a function of query, key, value, mask, output and logsumexp that computes a call of a plan.

    It returns the output; None where these tensors are none of the plan, False where they are and it was
    left to be computed without the GIL; it raises what their owner raises. A function of C's own, for a
    call through ctypes takes longer than all the rest. Raises NotBuilt.
    """
    made = ctypes.pythonapi.PyCFunction_NewEx
    made.restype = ctypes.py_object
    made.argtypes = (ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p)
    found: Callable[[Any, Any, Any, Any, Any, Any], Any] = made(_planned(), plan, None)
    return found


@cache
def planning() -> ctypes.PyDLL:
    """Return what computes planned problems, called with the GIL held. Raises NotBuilt."""
    library()  # which says what is wrong with it
    found = ctypes.PyDLL(path())
    address = ctypes.c_void_p
    layout_of = found.mlbackends_attention_layout_of
    layout_of.restype, layout_of.argtypes = address, (ctypes.c_char_p, address, ctypes.c_char_p)
    placed = found.mlbackends_attention_placed
    placed.restype, placed.argtypes = ctypes.c_int64, (ctypes.c_char_p, address, address)
    gradients = found.mlbackends_attention_gradients_placed
    gradients.restype = ctypes.c_int64
    gradients.argtypes = (ctypes.c_char_p, address, ctypes.c_double, address)
    content = bytes.__basicsize__ - 1  # which counts the zero behind it
    take = ctypes.cast(ctypes.pythonapi.Py_IncRef, address).value
    found.mlbackends_attention_meet.argtypes = (ctypes.c_char_p,)
    found.mlbackends_attention_meet(struct.pack("=qQQQ", content, take, id(None), id(False)))
    return found


def with_field(problem: bytes, field: tuple[int, struct.Struct], number: int) -> bytes:
    """Return a packed problem with another number in one of its fields."""
    start, form = field
    return problem[:start] + form.pack(number) + problem[start + form.size :]


def compiled_levels() -> tuple[str, ...]:
    """Return the instruction sets that were compiled, the least one first. Raises NotBuilt."""
    found = library()
    names: list[str] = []
    while name := found.mlbackends_attention_level_name(len(names)):
        names.append(name.decode())
    return tuple(names)


def usable_levels() -> tuple[str, ...]:
    """Return those that this CPU and this system can run, whatever the environment says.

    The system is asked for nothing here; one that gives no tiles of AMX when a problem of bfloat16 comes
    has it computed without them. Raises NotBuilt.
    """
    runs, names = library().mlbackends_attention_level_runs, compiled_levels()
    return tuple(name for number, name in enumerate(names) if runs(number))


def left_by(capability: str, usable: tuple[str, ...]) -> tuple[str, ...]:
    """Return the instruction sets that a value of ATEN_CPU_CAPABILITY leaves of some, the least one first."""
    left = _LEFT.get(capability, ())
    return tuple(name for name in usable if name in left) or usable


def level() -> int:
    """Return the number of the instruction set that counts. Raises NotBuilt."""
    return _default_level() if _chosen is None else _chosen


@contextlib.contextmanager
def lowered(name: str) -> Iterator[None]:
    """Use another instruction set that this CPU can run, in this process. Raises ValueError."""
    global _chosen  # noqa: PLW0603  a switch of the whole process, like the variable that it stands for
    names = compiled_levels()
    if name not in names or not library().mlbackends_attention_level_runs(names.index(name)):
        raise ValueError(f"this CPU cannot run {name!r}; it runs {', '.join(usable_levels())}")
    before, _chosen = _chosen, names.index(name)
    store.changed()
    try:
        yield
    finally:
        _chosen = before
        store.changed()


@cache
def _default_level() -> int:
    left = left_by(os.environ.get("ATEN_CPU_CAPABILITY", ""), usable_levels())
    return compiled_levels().index(left[-1])

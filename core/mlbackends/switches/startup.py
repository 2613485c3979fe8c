"""How the switches start, from a file and the environment; and the variables for a process that starts so.

Read in the order of the table, so older switches come first and the entries that they bridge to later.
"""

import os
import sys

from mlbackends.switches.cells import (
    CUDA_MATMUL,
    MKLDNN_MATMUL,
    OLDER,
    Cells,
    cells_of,
    put,
    untouched,
)
from mlbackends.switches.table import FLAGS, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

OUR_PREFIX = "MLBACKENDS_"
FILE_VARIABLE = "MLBACKENDS_FLAGS"
#: Variables that begin with ours and set no switch; the tracer has several more.
_OTHERS = (
    FILE_VARIABLE, "MLBACKENDS_CARRIED", "MLBACKENDS_TORCH_PYTHON", "MLBACKENDS_NATIVE",
    "MLBACKENDS_OBJECTS",
)  # fmt: skip
_OF_THE_TRACER = "MLBACKENDS_TRACE_"
ENVIRONMENT, FILE = "environment", "file"

#: The values of ATEN_CPU_CAPABILITY beside "default", where they are not avx2 and avx512.
_INSTRUCTION_SETS = {
    "ppc64le": ("vsx",),
    "s390x": ("zvector",),
    "aarch64": ("sve256",),
    "arm64": ("sve256",),
}
#: In place of a value: nothing is to be changed, and no variable is needed.
_NOTHING = object()
_MOST_PROBLEMS = 3


def first_cells() -> tuple[Cells, list[str]]:
    """Return the cells of a process that starts here, and what was wrong with its variables and its file."""
    cells, problems = untouched(), []
    path = os.environ.get(FILE_VARIABLE, "")
    if path:
        from mlbackends.model.errors import MlBackendsError
        from mlbackends.switches import files

        try:
            for name, value in files.read(path).items():
                put(cells, FLAGS[name], value, FILE)
        except MlBackendsError as error:
            problems.append(f"Ignoring the file that {FILE_VARIABLE} names: {error}")
    found, wrong = switches_of_variables(os.environ)
    for name, (_, value) in found.items():
        put(cells, FLAGS[name], value, ENVIRONMENT)
    return cells, [*problems, *(sentence for _, sentence in wrong)]


def switches_of_variables(
    environment: "Mapping[str, str]",
) -> "tuple[dict[str, tuple[str, object]], list[tuple[str, str]]]":
    """Return the switches that variables set, and what is wrong with others, which are to be ignored.

    The first by the names of switches, each with its variable; the second with the variable too.
    """
    found: dict[str, tuple[str, object]] = {}
    problems: list[tuple[str, str]] = []
    for flag in FLAGS.values():
        for variable, meanings in flag.variables.items():
            text = environment.get(variable)
            if text is None:
                continue
            try:
                value = _parsed(flag, text, meanings)
            except ValueError as error:
                kind = "boolean flag" if flag.kind.name == "bool" or meanings else "flag"
                short = text if len(text) <= 80 else f"{text[:77]}..."
                short = short if short.isprintable() else ascii(short)
                ending = "" if str(error).endswith(("?", ".")) else "."
                sentence = f"Ignoring invalid value for {kind} {variable}: {short}; {error}{ending}"
                problems.append((variable, sentence))
                continue
            if value is not _NOTHING:
                found[flag.name] = (variable, value)
    return found, problems + _unknown_variables(environment)


def as_error(problems: "list[str]") -> str:
    """Return one sentence of what is wrong, for where it is not ignored; of many the first ones."""
    text = " ".join(each.removeprefix("Ignoring ") for each in problems[:_MOST_PROBLEMS])
    left = len(problems) - _MOST_PROBLEMS
    return f"{text} And {left} more." if left > 0 else text


def _unknown_variables(environment: "Mapping[str, str]") -> "list[tuple[str, str]]":
    valid = {*_OTHERS, *(each for flag in FLAGS.values() for each in flag.variables)}
    unknown = [
        name
        for name in environment
        if name.startswith(OUR_PREFIX) and name not in valid and not name.startswith(_OF_THE_TRACER)
    ]
    if not unknown:
        return []
    from mlbackends.switches.files import unknown_variable

    ours = tuple(sorted(each for each in valid if each.startswith(OUR_PREFIX)))
    return [(name, unknown_variable(name, ours)) for name in unknown]


def variables(wanted: Cells) -> "dict[str, str]":
    """Return the variables with which a new process gets these cells; {} where all are defaults."""
    made = untouched()
    found: dict[str, str] = {}
    for flag in FLAGS.values():
        value = _difference(flag, made, wanted)
        if value is not _NOTHING:
            put(made, flag, value, ENVIRONMENT)
            found.update([variable_of(flag, value)])
    return found


def _difference(flag: Flag, made: Cells, wanted: Cells) -> object:
    """Return the value that a switch needs to get from the cells `made` to those `wanted`."""
    if flag.read_only:
        return _NOTHING
    # The variable of allow_tf32 can set only True, and does not change oneDNN.
    both = tuple(wanted[cell][0] for cell in (CUDA_MATMUL, OLDER, MKLDNN_MATMUL))
    by_its_variable = both == ("tf32", "high", "none")
    if flag.name == "cuda.matmul.allow_tf32":
        return True if by_its_variable else _NOTHING
    if flag.name == OLDER and by_its_variable:
        return _NOTHING
    cell = cells_of(flag.name)[0]
    return _NOTHING if made[cell][0] == wanted[cell][0] else wanted[cell][0]


def variable_of(flag: Flag, value: object) -> tuple[str, str]:
    """Return the variable that gives a switch its value, torch's own where it can, and its text."""
    text = flag.kind.written(value)
    for variable, meanings in flag.variables.items():
        for short, meaning in meanings.items():
            if meaning == text:
                return variable, short
        if not meanings:
            return variable, text
    raise AssertionError(flag.name)


def _parsed(flag: Flag, text: str, meanings: "dict[str, str]") -> object:
    if flag.read_only:
        raise ValueError(f"{flag.name} is an answer, not a setting")
    if meanings:
        if text not in meanings:
            raise ValueError("valid values are 0 or 1")
        text = meanings[text]
    if meanings and not text:
        return _NOTHING
    value = flag.kind.parsed(text)
    if flag.name == "cpu.capability":
        machine = os.uname().machine if hasattr(os, "uname") else "x86_64"
        words = ("default", *_INSTRUCTION_SETS.get(machine, ("avx2", "avx512")))
        if value not in words:  # processors of this kind never have it
            raise ValueError(f"on {machine} choose from: {', '.join(words)}")
    # torch starts at "none" then, not at the "ieee" that the assignment would mean.
    return _NOTHING if flag.name == "cuda.matmul.allow_tf32" and value is False else value


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest line of the caller: outside of this package and of contextlib."""
    import warnings

    level = 1
    frame = sys._getframe(1)  # noqa: SLF001  what warnings itself counts by
    while frame.f_back is not None and _is_own_module(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)


def _is_own_module(module: str) -> bool:
    return module in ("mlbackends", "contextlib") or module.startswith("mlbackends.")

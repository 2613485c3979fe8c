"""How the switches start, from a file and the environment; and the variables for a process that starts so.

Read in the order of the table, so older switches come first and the entries that they bridge to later.
"""

import os
import sys
from collections.abc import Mapping

from mlbackends.base.errors import MlBackendsError, nearest, shown
from mlbackends.base.patterns import without_secrets
from mlbackends.switches import cells
from mlbackends.switches.cells import OLDER, Cells
from mlbackends.switches.table import SWITCHES, Switch

OUR_PREFIX = "MLBACKENDS_"
FILE_VARIABLE = "MLBACKENDS_FLAGS"
#: Variables that begin with ours and set no switch; the tracer has several more.
_FURTHER = (
    FILE_VARIABLE, "MLBACKENDS_CARRIED", "MLBACKENDS_TORCH_PYTHON", "MLBACKENDS_NATIVE",
    "MLBACKENDS_OBJECTS", "MLBACKENDS_LOG",
)  # fmt: skip
_OF_THE_TRACER = "MLBACKENDS_TRACE_"
ENVIRONMENT, FILE = "environment", "file"

#: The values of ATEN_CPU_CAPABILITY except "default", by machine.
_INSTRUCTION_SETS = {
    "x86_64": ("avx2", "avx512"),
    "amd64": ("avx2", "avx512"),
    "ppc64le": ("vsx",),
    "ppc64": ("vsx",),
    "s390x": ("zvector",),
    "aarch64": ("sve128", "sve256"),
    "arm64": ("sve128", "sve256"),
}
#: In place of a value: nothing is to be changed, and no variable is needed.
_NOTHING = object()
_MOST_PROBLEMS = 3


def first_cells() -> tuple[Cells, list[str]]:
    """Return the cells of a process that starts here, and what was wrong with its variables and its file."""
    values, problems = cells.untouched(), []
    path = os.environ.get(FILE_VARIABLE, "")
    if path:
        from mlbackends.switches import files

        try:
            for name, value in files.read(path).items():
                cells.put(values, SWITCHES[name], value, FILE)
        except MlBackendsError as error:
            problems.append(f"Ignoring the file that {FILE_VARIABLE} names: {error}")
    found, wrong = switches_of_variables(os.environ)
    for name, (_, value) in found.items():
        cells.put(values, SWITCHES[name], value, ENVIRONMENT)
    return values, [*problems, *(sentence for _, sentence in wrong)]


def switches_of_variables(
    environment: Mapping[str, str],
) -> tuple[dict[str, tuple[str, object]], list[tuple[str, str]]]:
    """Return the switches that variables set, and what is wrong with others, which are to be ignored.

    The first by the names of switches, each with its variable; the second with the variable too.
    """
    found: dict[str, tuple[str, object]] = {}
    problems: list[tuple[str, str]] = []
    for switch in SWITCHES.values():
        for variable, meanings in switch.variables.items():
            text = environment.get(variable)
            if text is None:
                continue
            try:
                value = _parsed(switch, text, meanings)
            except ValueError as error:
                kind = "boolean flag" if switch.kind.name == "bool" or meanings else "flag"
                text = without_secrets(text)
                short = text if len(text) <= 80 else f"{text[:77]}..."
                short = short if short.isprintable() else ascii(short)
                ending = "" if str(error).endswith(("?", ".")) else "."
                sentence = f"Ignoring invalid value for {kind} {variable}: {short}; {error}{ending}"
                problems.append((variable, sentence))
                continue
            if value is not _NOTHING:
                found[switch.name] = (variable, value)
    valid = {
        *_FURTHER,
        *(variable for switch in SWITCHES.values() for variable in switch.variables),
    }
    for name in environment:
        if name in valid or not name.startswith(OUR_PREFIX) or name.startswith(_OF_THE_TRACER):
            continue
        near = nearest(name, tuple(sorted(known for known in valid if known.startswith(OUR_PREFIX))))
        ending = f"did you mean {near[0]}?" if near else "`backends flags list` lists the switches."
        sentence = f"Ignoring the variable {shown(name)[1:-1]}: no switch has it; {ending}"
        problems.append((name, sentence))
    return found, problems


def as_error(problems: "list[str]") -> str:
    """Return one sentence of what is wrong, for where it is not ignored; of many the first ones."""
    text = " ".join(problem.removeprefix("Ignoring ") for problem in problems[:_MOST_PROBLEMS])
    left = len(problems) - _MOST_PROBLEMS
    return f"{text} And {left} more." if left > 0 else text


def variables(cells_set: Cells) -> "dict[str, str]":
    """Return the variables with which a new process gets these cells; {} where all are defaults."""
    values = cells.untouched()
    found: dict[str, str] = {}
    # The variable of allow_tf32 can set only True, and does not change oneDNN.
    of_matmul = tuple(cells_set[cell][0] for cell in (cells.CUDA_MATMUL, OLDER, cells.MKLDNN_MATMUL))
    by_allow_tf32 = of_matmul == ("tf32", "high", "none")
    for switch in SWITCHES.values():
        cell = cells.cells_of(switch.name)[0]
        value, differs = cells_set[cell][0], values[cell][0] != cells_set[cell][0]
        if switch.name == "cuda.matmul.allow_tf32":
            value, differs = True, by_allow_tf32
        if switch.read_only or not differs or (switch.name == OLDER and by_allow_tf32):
            continue
        cells.put(values, switch, value, ENVIRONMENT)
        found.update([variable_of(switch, value)])
    return found


def variable_of(switch: Switch, value: object) -> tuple[str, str]:
    """Return the variable that gives a switch its value, torch's own where it can, and its text."""
    text = switch.kind.written(value)
    for variable, meanings in switch.variables.items():
        for short, meaning in meanings.items():
            if meaning == text:
                return variable, short
        if not meanings:
            return variable, text
    raise AssertionError(switch.name)


def refuse_capability(word: str) -> None:
    """Raise ValueError for an instruction set that processors of this kind never have; torch warns of it."""
    if sys.platform == "win32":
        from mlbackends.host.windows.calls import names

        machine = names()[4]
    else:
        machine = os.uname().machine
    words = ("default", *_INSTRUCTION_SETS.get(machine.lower(), ()))
    if word not in words:
        raise ValueError(f"on {machine} choose from: {', '.join(words)}")


def _parsed(switch: Switch, text: str, meanings: "dict[str, str]") -> object:
    if switch.read_only:
        raise ValueError(f"{switch.name} is read-only")
    if meanings:
        if text not in meanings:
            raise ValueError("valid values are 0 or 1")
        text = meanings[text]
        if not text:
            return _NOTHING
    value = switch.kind.parsed(text)
    if switch.name == "cpu.capability":
        refuse_capability(str(value))
    # torch starts at "none" then, not at the "ieee" that the assignment would mean.
    return _NOTHING if switch.name == "cuda.matmul.allow_tf32" and value is False else value


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest line of the caller: outside of this package and of contextlib."""
    import warnings

    level, frame = 1, sys._getframe(1)  # noqa: SLF001  what warnings itself counts by
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module not in ("mlbackends", "contextlib") and not module.startswith("mlbackends."):
            break
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)

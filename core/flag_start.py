"""How the switches start, from a file and the environment; and the variables that make a process start so.

Read in the order of the table, so older switches come first and the entries that they bridge to later.
"""

import os

from mlbackends.flag_cells import CUDA_MATMUL, MKLDNN_MATMUL, OLDER, Cells, cells_of, put, untouched
from mlbackends.flag_table import FLAGS, Flag

FILE_VARIABLE = "MLBACKENDS_FLAGS"
ENVIRONMENT, FILE = "environment", "file"

#: What ATEN_CPU_CAPABILITY may say beside "default", where that is not avx2 or avx512.
_INSTRUCTION_SETS = {
    "ppc64le": ("vsx",),
    "s390x": ("zvector",),
    "aarch64": ("sve256",),
    "arm64": ("sve256",),
}
#: In place of a value: nothing is to be changed, or said.
_NOTHING = object()


def first_cells() -> tuple[Cells, list[str]]:
    """Return the cells of a process that starts here, and what was wrong with its variables and its file."""
    cells, problems = untouched(), []
    path = os.environ.get(FILE_VARIABLE, "")
    if path:
        problems += _take_file(cells, path)
    for flag in FLAGS.values():
        problems += _take_variables(cells, flag)
    return cells, problems


def variables(wanted: Cells) -> "dict[str, str]":
    """Return the variables with which a new process gets these cells; {} where all are defaults."""
    made = untouched()
    found: dict[str, str] = {}
    for flag in FLAGS.values():
        value = _to_say(flag, made, wanted)
        if value is not _NOTHING:
            put(made, flag, value, ENVIRONMENT)
            found.update([_said(flag, value)])
    return found


def _to_say(flag: Flag, made: Cells, wanted: Cells) -> object:
    """Return what must be said of a switch to get from the cells `made` to those `wanted`."""
    if flag.read_only:
        return _NOTHING
    # The variable of this one can say only True: that, and nothing of oneDNN.
    both = tuple(wanted[cell][0] for cell in (CUDA_MATMUL, OLDER, MKLDNN_MATMUL))
    by_its_variable = both == ("tf32", "high", "none")
    if flag.name == "cuda.matmul.allow_tf32":
        return True if by_its_variable else _NOTHING
    if flag.name == OLDER and by_its_variable:
        return _NOTHING
    cell = cells_of(flag.name)[0]
    return _NOTHING if made[cell][0] == wanted[cell][0] else wanted[cell][0]


def _said(flag: Flag, value: object) -> tuple[str, str]:
    """Return the variable that says a value, torch's own where it can, and its text."""
    text = flag.kind.written(value)
    for variable, meanings in flag.variables.items():
        for short, meaning in meanings.items():
            if meaning == text:
                return variable, short
        if not meanings:
            return variable, text
    raise AssertionError(flag.name)


def _take_file(cells: Cells, path: str) -> list[str]:
    from mlbackends import flag_files
    from mlbackends.model.errors import MlBackendsError

    try:
        for name, value in flag_files.read(path).items():
            put(cells, FLAGS[name], value, FILE)
    except MlBackendsError as error:
        return [f"Ignoring the file that {FILE_VARIABLE} names: {error}"]
    return []


def _take_variables(cells: Cells, flag: Flag) -> list[str]:
    """Read a switch's variables. One that holds nonsense is ignored, as in torch, and told."""
    problems: list[str] = []
    for variable, meanings in flag.variables.items():
        text = os.environ.get(variable)
        if text is None or flag.read_only:
            continue
        try:
            value = _parsed(flag, text, meanings)
        except ValueError as error:
            kind = "boolean flag" if flag.kind.name == "bool" or meanings else "flag"
            problems.append(
                f"Ignoring invalid value for {kind} {variable}: {_shown(text)}; {error}."
            )
            continue
        if value is not _NOTHING:
            put(cells, flag, value, ENVIRONMENT)
    return problems


def _shown(text: str) -> str:
    """Return a variable's text as it fits into one line."""
    short = text if len(text) <= 80 else f"{text[:77]}..."
    return short if short.isprintable() else ascii(short)


def _parsed(flag: Flag, text: str, meanings: "dict[str, str]") -> object:
    if meanings:
        if text not in meanings:
            raise ValueError("valid values are 0 or 1")
        text = meanings[text]
    if meanings and not text:
        return _NOTHING
    value = flag.kind.parsed(text)
    if flag.name == "cpu.capability":
        _refuse_of_other_processors(str(value))
    # torch starts at "none" then, not at the "ieee" that the assignment would mean.
    return _NOTHING if flag.name == "cuda.matmul.allow_tf32" and value is False else value


def _refuse_of_other_processors(word: str) -> None:
    """Raise ValueError for an instruction set that processors of this kind never have."""
    machine = os.uname().machine if hasattr(os, "uname") else "x86_64"
    own = _INSTRUCTION_SETS.get(machine, ("avx2", "avx512"))
    if word not in ("default", *own):
        raise ValueError(f"on {machine} choose from: default, {', '.join(own)}")

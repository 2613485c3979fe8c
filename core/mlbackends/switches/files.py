"""Files of switches: TOML tables whose dotted keys are the switches' names.

fp32_precision = "ieee"
[cudnn]
benchmark = true
[cuda.matmul]
allow_fp16_reduced_precision_reduction = [false, true]

Everything that is wrong is reported as FILE:LINE: what is wrong.
"""

import os
import stat
from collections.abc import Iterator

from mlbackends.model.errors import BadInput, GroupName, UnknownName, nearest, shown
from mlbackends.switches.cells import ADVICE, clashing, contradiction
from mlbackends.switches.kinds import Kibibytes, Permutation, Reduction, Text, Workspace
from mlbackends.switches.table import FLAGS, Flag

_TRUE_OR_FALSE = "values are true or false"
_LIMIT = 1 << 20
_LONGEST = 300
_DEEPEST = 5
"""So many parts a key is followed down; no switch has as many."""


def read(path: str) -> "dict[str, object]":
    """Return the switches of a file, each checked. Raises BadInput with file, line and key."""
    return switches(read_bytes(path), path)


def switches(data: bytes, path: str) -> "dict[str, object]":
    """Return the switches of a file's bytes, each checked and none against another.

    path: the name of the file in BadInput.
    """
    text, tables = parsed(data, path)
    found: dict[str, object] = {}
    for name, value in leaves(tables, groups()):
        flag = FLAGS.get(name)
        if flag is None:
            error = unknown(name)
            raise BadInput(f"{path}:{line_of(text, name)}: {error}", error.hint)
        try:
            found[name] = from_data(flag, value)
        except ValueError as why:
            where = f"{path}:{line_of(text, name)}"
            raise BadInput(f"{where}: {name} cannot be {shown(value)}: {why}") from None
    names = clashing(found)
    if names:
        line = max(line_of(text, name) for name in names)
        raise BadInput(f"{path}:{line}: {contradiction(found, names)}", ADVICE)
    return found


def from_text(flag: Flag, text: str) -> object:
    """Return the value that a text stands for: what a variable takes, and true and false.

    Raises ValueError with what is accepted.
    """
    if flag.read_only:
        raise ValueError("it is an answer, not a setting")
    words = {"true": "1", "false": "0", "on": "1", "off": "0"}
    if flag.kind.annotation.startswith("bool"):
        text = ",".join(words.get(part.strip().lower(), part) for part in text.split(","))
    elif flag.kind.annotation.startswith("int") and text.isascii() and text.isdecimal():
        # Bytes, as in Python; the variable has a spelling of its own.
        return _checked(flag, int(text[:30]))
    return _parsed(flag, text)


def from_data(flag: Flag, value: object) -> object:
    """Return the value that decoded TOML or JSON stands for. Raises ValueError with what is accepted."""
    if flag.read_only:
        raise ValueError("it is an answer, not a setting")
    if isinstance(flag.kind, Permutation) and isinstance(value, list):
        return flag.kind.parsed(
            ",".join(each if isinstance(each, str) else shown(each) for each in value)
        )
    if isinstance(value, str):
        return _parsed(flag, value)
    if isinstance(flag.kind, Text) and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= 2**63:
            raise ValueError("valid numbers are less than 2**63")
        return flag.kind.parsed(str(value))
    return _checked(flag, value)


def settings(texts: "tuple[str, ...]") -> "dict[str, object]":
    """Return the switches of texts such as "cudnn.benchmark=true", each checked.

    Raises UnknownName, and BadInput for a text or value that makes no sense, or a name given twice.
    """
    found: dict[str, object] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign:
            raise BadInput(
                f"{shown(text)} is no setting", "write NAME=VALUE, such as cudnn.benchmark=true"
            )
        if name not in FLAGS:
            raise unknown(name)
        try:
            taken = from_text(FLAGS[name], value.strip())
        except ValueError as error:
            raise BadInput(f"{name} cannot be {shown(value.strip())}: {error}") from None
        if name in found and found[name] != taken:
            raise BadInput(f"{name} is set twice, to different values")
        found[name] = taken
    return found


def as_data(flag: Flag, value: object) -> object:
    """Return a value as JSON and TOML have it; `from_data` reads it back."""
    if isinstance(flag.kind, Permutation) and isinstance(value, tuple):
        return flag.kind.written(value).split(",")
    if isinstance(flag.kind, Reduction) and isinstance(value, tuple):
        return list(value)
    return value


def _parsed(flag: Flag, text: str) -> object:
    """Return what a text stands for; 0 and 1 are the variables' spelling of false and true."""
    try:
        return flag.kind.parsed(text)
    except ValueError as error:
        advice = str(error).replace("values are 0 or 1", _TRUE_OR_FALSE)
        if isinstance(flag.kind, Workspace | Kibibytes):
            advice = f"{advice}; or a whole number of bytes"
        raise ValueError(advice) from None


def _checked(flag: Flag, value: object) -> object:
    try:
        return flag.kind.checked(flag.name, value)
    except (TypeError, RuntimeError) as error:
        advice = f"; valid {_TRUE_OR_FALSE}" if flag.kind.name == "bool" else ""
        raise ValueError(str(error).removeprefix(f"{flag.name} ") + advice) from None


def read_bytes(path: str) -> bytes:
    """Return a file, cut where it is too large. A pipe is refused: reading it might never end."""
    at_once = getattr(os, "O_NONBLOCK", 0)
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | at_once)) as file:
            is_pipe = stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
            data = b"" if is_pipe else file.read(_LIMIT + 1)
    except OSError as error:
        short = path if len(path) <= _LONGEST else f"{path[:_LONGEST]}..."
        raise BadInput(f"{short} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise BadInput(f"{shown(path)} cannot be read: {error}") from None
    if is_pipe:
        raise BadInput(
            f"{path} cannot be read: it is a pipe, and a file is needed",
            "`backends flags check -` reads standard input",
        )
    return data


def parsed(data: bytes, path: str) -> "tuple[str, dict[str, object]]":
    """Return the text of a file and its tables. A byte order mark of UTF-8 is ignored."""
    import tomllib

    if len(data) > _LIMIT:
        raise BadInput(f"{path} is larger than {_LIMIT} bytes; that is no file of switches")
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
        return text, tomllib.loads(text)
    except UnicodeDecodeError as error:
        utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        seen = "; it begins as UTF-16 does" if utf16 else ""
        line = data[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}:{line}: not UTF-8 at byte {error.start}{seen}") from None
    except tomllib.TOMLDecodeError as error:
        # tomllib has the place at the end: "... (at line 1, column 7)", "... (at end of document)".
        problem, _, place = str(error).rpartition(" (at ")
        words = place.rstrip(")").replace(",", "").split()
        line, where = len(text.rstrip("\n").split("\n")), "at the end"
        if words[:1] == ["line"] and len(words) == 4:
            line, where = int(words[1]), f"column {words[3]}"
        raise BadInput(f"{path}:{line}: {problem} ({where})") from None
    except RecursionError:
        raise BadInput(f"{path}: nested more deeply than any switch is") from None
    except ValueError:  # int() refuses thousands of digits
        raise BadInput(f"{path}: a number in it has thousands of digits") from None


def leaves(
    table: "dict[str, object]", groups: "tuple[str, ...]", prefix: str = "", depth: int = 1
) -> Iterator[tuple[str, object]]:
    """Yield the dotted keys of tables and their values; a group's empty table sets nothing."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and depth < _DEEPEST and (value or name in groups):
            yield from leaves(value, groups, f"{name}.", depth + 1)
        else:
            yield name, value


def line_of(text: str, name: str) -> int:
    """Return the line on which a key stands, counted from 1: its last part, below its table's head."""
    key = name.rpartition(".")[2]
    table, best = "", 1
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = stripped.partition("#")[0].strip("[] \t").replace(" ", "").replace('"', "")
            if table == name:
                return number
            continue
        left = stripped.partition("=")[0].strip().replace(" ", "").replace('"', "")
        whole = f"{table}.{left}".strip(".")
        if left and (whole == name or whole.startswith(f"{name}.")):
            return number
        if left.rpartition(".")[2] == key and "=" in stripped:
            best = number
    return best


def groups() -> tuple[str, ...]:
    """Return every name below which there are switches: cuda, cuda.matmul, cudnn, ..."""
    found: dict[str, None] = {}
    for name in FLAGS:
        parts = name.split(".")
        found.update(dict.fromkeys(".".join(parts[:end]) for end in range(1, len(parts))))
    return tuple(found)


def members(group: str) -> tuple[str, ...]:
    """Return the switches below a group's name, () where it is none."""
    return tuple(name for name in FLAGS if name.startswith(f"{group}."))


def unknown(name: str) -> UnknownName:
    """Return the exception for a name that is no switch: the members of a group, else the nearest."""
    below = members(name)
    if below:
        return GroupName(name, below, f"backends flags list {name}")
    return UnknownName("switch", name, tuple(FLAGS), "backends flags list")


def unknown_variable(name: str, ours: "tuple[str, ...]") -> str:
    """Return the warning about a variable that begins as ours do, and that nothing reads."""
    near = nearest(name, ours)
    ending = f"did you mean {near[0]}?" if near else "`backends flags list` has the switches."
    return f"Ignoring the variable {shown(name)[1:-1]}: no switch has it; {ending}"

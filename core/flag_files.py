"""Files of switches: TOML tables whose dotted keys are the switches' names.

fp32_precision = "ieee"
[cudnn]
benchmark = true
[cuda.matmul]
allow_fp16_reduced_precision_reduction = [false, true]
"""

from collections.abc import Iterator

from mlbackends.flag_kinds import Permutation, Reduction, Text
from mlbackends.flag_table import FLAGS, Flag
from mlbackends.model.errors import BadInput, UnknownName

_LIMIT = 1 << 20


def read(path: str) -> "dict[str, object]":
    """Return the switches of a file, each checked. Raises BadInput with file, line and key."""
    import tomllib

    text = _start_of(path)
    if len(text) > _LIMIT:
        raise BadInput(f"{path} is larger than {_LIMIT} bytes; that is no file of switches")
    try:
        decoded = text.decode("utf-8")
        tables = tomllib.loads(decoded)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 at byte {error.start}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{path}: {error}") from None
    found: dict[str, object] = {}
    for name, value in _switches(tables):
        where = f"{path}:{_line(decoded, name)}"
        flag = FLAGS.get(name)
        if flag is None:
            unknown = UnknownName("switch", name, tuple(FLAGS))
            raise BadInput(f"{where}: {unknown}", unknown.hint)
        try:
            found[name] = from_data(flag, value)
        except ValueError as error:
            raise BadInput(f"{where}: {name} cannot be {value!r}: {error}") from None
    return found


def _start_of(path: str) -> bytes:
    """Return the first bytes of a file. A pipe is refused: nobody may ever write to it."""
    import os
    import stat

    at_once = getattr(os, "O_NONBLOCK", 0)
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | at_once)) as file:
            is_pipe = stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
            text = b"" if is_pipe else file.read(_LIMIT + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise BadInput(f"{path!r} cannot be read: {error}") from None
    if is_pipe:
        raise BadInput(f"{path} cannot be read: it is a pipe, and a file is needed")
    return text


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
    return flag.kind.parsed(text)


def from_data(flag: Flag, value: object) -> object:
    """Return the value that decoded TOML or JSON stands for. Raises ValueError with what is accepted."""
    if flag.read_only:
        raise ValueError("it is an answer, not a setting")
    if isinstance(flag.kind, Permutation) and isinstance(value, list):
        return flag.kind.parsed(",".join(map(str, value)))
    if isinstance(value, str):
        return flag.kind.parsed(value)
    if isinstance(flag.kind, Text) and isinstance(value, int) and not isinstance(value, bool):
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
                f"{text!r} is no setting", "write NAME=VALUE, such as cudnn.benchmark=true"
            )
        if name not in FLAGS:
            raise UnknownName("switch", name, tuple(FLAGS))
        try:
            taken = from_text(FLAGS[name], value.strip())
        except ValueError as error:
            raise BadInput(f"{name} cannot be {value.strip()!r}: {error}") from None
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


def _checked(flag: Flag, value: object) -> object:
    try:
        return flag.kind.checked(flag.name, value)
    except (TypeError, RuntimeError) as error:
        raise ValueError(str(error)) from None


def _switches(table: "dict[str, object]", prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and (
            value or any(each.startswith(f"{name}.") for each in FLAGS)
        ):
            yield from _switches(value, f"{name}.")
        else:
            yield name, value


def _line(text: str, name: str) -> int:
    """Return the line on which a key stands, counted from 1: its last part, below its table's head."""
    key = name.rpartition(".")[2]
    table, best = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            table = stripped.strip("[] \t").replace(" ", "")
        left = stripped.partition("=")[0].strip().replace(" ", "").replace('"', "")
        if left and f"{table}.{left}".strip(".") == name:
            return number
        if left.rpartition(".")[2] == key and "=" in stripped:
            best = number
    return best

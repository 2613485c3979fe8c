"""Files of switches: TOML tables whose dotted keys are the switches' names.

fp32_precision = "ieee"
[cudnn]
benchmark = true
[cuda.matmul]
allow_fp16_reduced_precision_reduction = [false, true]
"""

from mlbackends.model.errors import BadInput, shown
from mlbackends.switches.conflicts import ADVICE, clashing, contradiction
from mlbackends.switches.kinds import Kibibytes, Permutation, Reduction, Text, Workspace
from mlbackends.switches.names import groups, unknown
from mlbackends.switches.table import FLAGS, Flag
from mlbackends.switches.toml_lines import leaves, line_of, parsed, read_bytes


def read(path: str) -> "dict[str, object]":
    """Return the switches of a file, each checked. Raises BadInput with file, line and key."""
    return switches(read_bytes(path), path)


def switches(data: bytes, path: str) -> "dict[str, object]":
    """Return the switches of a file's bytes, each checked and none against another.

    path: how the file is called in what BadInput says.
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


_TRUE_OR_FALSE = "values are true or false"


def _checked(flag: Flag, value: object) -> object:
    try:
        return flag.kind.checked(flag.name, value)
    except (TypeError, RuntimeError) as error:
        advice = f"; valid {_TRUE_OR_FALSE}" if flag.kind.name == "bool" else ""
        raise ValueError(str(error).removeprefix(f"{flag.name} ") + advice) from None

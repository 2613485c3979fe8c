"""Files of switches: TOML tables whose dotted keys are the switches' names.

fp32_precision = "ieee"
[cudnn]
benchmark = true
[cuda.matmul]
allow_fp16_reduced_precision_reduction = [false, true]

Everything that is wrong is reported as FILE:LINE: what is wrong.
"""

from collections.abc import Iterator

from mlbackends.base.errors import BadInput, GroupName, UnknownName, shown
from mlbackends.base.quantities import one_line
from mlbackends.host.files import named_bytes
from mlbackends.switches.cells import ADVICE, contradiction
from mlbackends.switches.kinds import Kibibytes, Permutation, Reduction, Text, Workspace
from mlbackends.switches.table import SWITCHES, Switch

_TRUE_OR_FALSE = "values are true or false"
#: No file of switches is larger than this, in bytes.
LIMIT = 1 << 20
_LONGEST = 300
#: How many parts of a key are followed down; no switch has as many.
_DEEPEST = 5


def read(path: str) -> "dict[str, object]":
    """Return the switches of a file, each checked. Raises BadInput with file, line and key."""
    short = path if len(path) <= _LONGEST else f"{path[:_LONGEST]}..."
    hint = "a file of switches has lines such as cudnn.benchmark = true"
    # Also read when a program imports us, whose standard input it is.
    name = "./-" if path == "-" else path
    data = named_bytes(name, LIMIT, "file of switches", one_line(short), hint, pipes=False)
    return switches(data, path)


def switches(data: bytes, path: str) -> "dict[str, object]":
    """Return the switches of a file's bytes, each checked and none against another.

    path: the name of the file in BadInput.
    """
    from mlbackends.base.toml_document import parsed

    document = parsed(data, path)
    found: dict[str, object] = {}
    paths: dict[str, tuple[str, ...]] = {}
    for keys, value in _leaves(document.tables, groups()):
        name = ".".join(keys)
        switch = SWITCHES.get(name)
        if switch is None:
            error = unknown(name)
            raise BadInput(f"{path}:{document.line(keys)}: {error}", error.hint)
        try:
            found[name] = from_data(switch, value)
        except ValueError as why:
            place = f"{path}:{document.line(keys)}"
            raise BadInput(f"{place}: {name} cannot be {shown(value)}: {why}") from None
        paths[name] = keys
    sentence, names = contradiction(found)
    if sentence:
        line = max(document.line(paths[name]) for name in names)
        raise BadInput(f"{path}:{line}: {sentence}", ADVICE)
    return found


def from_text(switch: Switch, text: str) -> object:
    """Return the value of a text: what a variable accepts, and true and false.

    Raises ValueError with what is accepted.
    """
    if switch.read_only:
        raise ValueError("it is read-only")
    words = {"true": "1", "false": "0", "on": "1", "off": "0"}
    if switch.kind.annotation.startswith("bool"):
        text = ",".join(words.get(part.strip().lower(), part) for part in text.split(","))
    elif switch.kind.annotation.startswith("int") and text.isascii() and text.isdecimal():
        # Bytes, as in Python; the variable is spelled differently.
        return _checked(switch, int(text[:30]))
    return _parsed(switch, text)


def from_data(switch: Switch, value: object) -> object:
    """Return the value of decoded TOML or JSON. Raises ValueError with what is accepted."""
    if switch.read_only:
        raise ValueError("it is read-only")
    if isinstance(switch.kind, Permutation) and isinstance(value, list):
        return switch.kind.parsed(",".join(item if isinstance(item, str) else shown(item) for item in value))
    if isinstance(value, str):
        return _parsed(switch, value)
    if isinstance(switch.kind, Text) and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= 2**63:
            raise ValueError("valid numbers are less than 2**63")
        return switch.kind.parsed(str(value))
    return _checked(switch, value)


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
                f"{shown(text)} is not a setting", "write NAME=VALUE, such as cudnn.benchmark=true"
            )
        if name not in SWITCHES:
            raise unknown(name)
        try:
            setting = from_text(SWITCHES[name], value.strip())
        except ValueError as error:
            raise BadInput(f"{name} cannot be {shown(value.strip())}: {error}") from None
        if name in found and found[name] != setting:
            raise BadInput(f"{name} is set twice, to different values")
        found[name] = setting
    return found


def as_data(switch: Switch, value: object) -> object:
    """Return a value as JSON and TOML have it; `from_data` reads it back."""
    if isinstance(switch.kind, Permutation) and isinstance(value, tuple):
        return switch.kind.written(value).split(",")
    if isinstance(switch.kind, Reduction) and isinstance(value, tuple):
        return list(value)
    return value


def _parsed(switch: Switch, text: str) -> object:
    """Return the value of a text; 0 and 1 are how variables spell false and true."""
    try:
        return switch.kind.parsed(text)
    except ValueError as error:
        advice = str(error).replace("values are 0 or 1", _TRUE_OR_FALSE)
        if isinstance(switch.kind, Workspace | Kibibytes):
            advice = f"{advice}; or a whole number of bytes"
        raise ValueError(advice) from None


def _checked(switch: Switch, value: object) -> object:
    try:
        return switch.kind.checked(switch.name, value)
    except (TypeError, RuntimeError) as error:
        advice = f"; valid {_TRUE_OR_FALSE}" if switch.kind.name == "bool" else ""
        raise ValueError(str(error).removeprefix(f"{switch.name} ") + advice) from None


def _leaves(
    table: "dict[str, object]", groups: "tuple[str, ...]", above: "tuple[str, ...]" = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the keys that lead to each value; a group's empty table sets nothing."""
    for key, value in table.items():
        path = (*above, key)
        is_group = bool(value) or ".".join(path) in groups
        if isinstance(value, dict) and len(path) < _DEEPEST and is_group:
            yield from _leaves(value, groups, path)
        else:
            yield path, value


def groups() -> tuple[str, ...]:
    """Return every name below which there are switches: cuda, cuda.matmul, cudnn, ..."""
    found: dict[str, None] = {}
    for name in SWITCHES:
        parts = name.split(".")
        found.update(dict.fromkeys(".".join(parts[:end]) for end in range(1, len(parts))))
    return tuple(found)


def members(group: str) -> tuple[str, ...]:
    """Return the switches below a group's name, () where it is none."""
    return tuple(name for name in SWITCHES if name.startswith(f"{group}."))


def unknown(name: str) -> UnknownName:
    """Return the exception for an unknown name, with the members of a group or the nearest switch."""
    below = members(name)
    if below:
        return GroupName(name, below, f"backends flags list {name}")
    return UnknownName("switch", name, tuple(SWITCHES), "backends flags list")

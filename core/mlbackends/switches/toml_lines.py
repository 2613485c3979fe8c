"""What a file of switches says, before any value is looked at: TOML whose dotted keys are names.

Everything that is wrong is told as FILE:LINE: what is wrong.
"""

from collections.abc import Iterator

from mlbackends.model.errors import BadInput, shown

_LIMIT = 1 << 20
_LONGEST = 300
_DEEPEST = 5
"""So many parts a key is followed down; no switch has as many."""


def read_bytes(path: str) -> bytes:
    """Return a file, cut where it is too large. A pipe is refused: nobody may ever write to it."""
    import os
    import stat

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
    """Return the text of a file and its tables. A byte order mark of UTF-8 is passed over."""
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
        raise BadInput(_syntax_error(path, text, str(error))) from None
    except RecursionError:
        raise BadInput(f"{path}: nested more deeply than any switch is") from None
    except ValueError:  # what int() says of thousands of digits
        raise BadInput(f"{path}: a number in it has thousands of digits") from None


def _syntax_error(path: str, text: str, said: str) -> str:
    """Put the line that tomllib has at the end to the front: "... (at line 1, column 7)"."""
    sentence, _, place = said.rpartition(" (at ")
    words = place.rstrip(")").replace(",", "").split()
    if words[:1] == ["line"] and len(words) == 4:
        return f"{path}:{words[1]}: {sentence} (column {words[3]})"
    last = len(text.rstrip("\n").split("\n"))
    return f"{path}:{last}: {sentence} (at the end)" if sentence else f"{path}:{last}: {said}"


def leaves(table: "dict[str, object]", groups: "tuple[str, ...]") -> Iterator[tuple[str, object]]:
    """Yield the dotted keys of tables and their values; a group's empty table says nothing."""
    yield from _leaves(table, groups, "", 1)


def _leaves(
    table: "dict[str, object]", groups: "tuple[str, ...]", prefix: str, depth: int
) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and depth < _DEEPEST and (value or name in groups):
            yield from _leaves(value, groups, f"{name}.", depth + 1)
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

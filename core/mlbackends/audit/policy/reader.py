"""Policy files: read by tomllib, every key checked. An error has FILE:LINE: KEY."""

import datetime as dt
import os
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NoReturn

from msgspec import Struct

from mlbackends.audit.policy.assertions import is_number
from mlbackends.audit.reports import bytes_of, is_deeper
from mlbackends.model import policy as language
from mlbackends.model.audit import Place
from mlbackends.model.errors import BadInput, shown, suggestion
from mlbackends.model.patterns import pattern

Path = tuple[str | int, ...]
"""The way to a key: that of the third `[[rule]]`'s key min is ("rule", 2, "min")."""

LIMIT = 1 << 20
"""No policy is larger, in bytes: a thousand rules have a tenth of it."""
DEEPEST = 40
"""So many brackets inside each other, and parts of a dotted key, are read; no policy has a tenth of it."""

_LONG_KEY = pattern(
    rf"""(?:^|[{{,])[ \t\[]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{DEEPEST}}}""",
    re.MULTILINE,
)
_BRACKETS = pattern(rf"(?:[\[{{]\s*+(?:[\w-]++\s*+=\s*+)?+){{{DEEPEST + 1}}}")
_ID = pattern(r"""^[ \t]*id[ \t]*=[ \t]*(?:"([^"\\\n]*)"|'([^'\n]*)')""", re.MULTILINE)
_HAZARDS = pattern(r"^[ \t]*\[?[ \t]*hazards\b.*", re.MULTILINE)
_PLAIN = pattern(r"(?=.*[0-9A-Za-z])[\w-]{1,80}", re.ASCII)
_MARK = "marked by backends"


class PolicyError(BadInput):
    """Something is wrong in a policy file; the message begins with FILE:LINE."""


class Document(Struct, frozen=True, dict=True):
    """One file that was read. file: as a message shows it. folder: the folder it may refer to files in."""

    path: str
    file: str
    folder: str
    text: str
    tables: dict[str, Any]

    @cached_property
    def _id_lines(self) -> list[int]:
        """The line of each rule's id; [] where the ids are not written one a line, as nearly all are."""
        found = list(_ID.finditer(self.text))
        if [one[1] or one[2] or "" for one in found] != [
            table.get("id") for table in self.tables.get("rule", ()) if isinstance(table, dict)
        ]:
            return []
        lines, line, at = [], 1, 0
        for one in found:
            line += self.text.count("\n", at, one.start())
            at = one.start()
            lines.append(line)
        return lines

    def place(self, path: Path) -> Place:
        """Return where a key stands."""
        if len(path) == 3 and path[0] == "rule" and path[2] == "id" and self._id_lines:
            return Place(self.file, self._id_lines[int(path[1])])
        if path == ("hazards",) and len(found := _HAZARDS.findall(self.text)) == 1:
            return Place(self.file, self.text.count("\n", 0, self.text.index(found[0])) + 1)
        text, first = self.text, 1
        if len(path) > 1 and isinstance(path[1], int):
            heads = list(re.finditer(rf"^[ \t]*\[\[[ \t]*{path[0]}[ \t]*\]\]", text, re.MULTILINE))
            if len(heads) == len(self.tables[str(path[0])]):  # one [[table]] is enough, and quicker
                starts = [*(one.start() for one in heads), len(text)]
                start, end = starts[path[1] : path[1] + 2]
                first += text.count("\n", 0, start)
                text, path = text[start:end], (path[0], 0, *path[2:])
        return Place(self.file, first + _line_of(text, path))

    def wrong(self, path: Path, message: str) -> NoReturn:
        """Raise PolicyError: the file, the line, the key and what is wrong with it."""
        keys = [part for part in path if isinstance(part, str)]
        key = ".".join(part if _PLAIN.fullmatch(part) else repr(part[:80]) for part in keys)
        head = f"{self.file}:{self.place(path).line}: "
        raise PolicyError(f"{head}{key}: {message}" if key else f"{head}{message}")


def _line_of(text: str, path: Path) -> int:
    """Return the line of a key from 0, or of what it would stand in: the first that marking it changes."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import AoT, Table

    while path:
        try:
            document: Any = tomlkit.parse(text)
            before = document.as_string()
            parent: Any = document
            for part in path[:-1]:
                parent = parent[part]
            key: Any = path[-1]
            while isinstance(item := parent[key], Table | AoT):
                if isinstance(item, Table):
                    item.comment(_MARK)
                    if document.as_string() != before:
                        break
                # It has no head of its own: the first thing in it stands for it.
                parent, key = item, 0 if isinstance(item, AoT) else next(iter(item), None)
            else:
                parent[key] = _MARK
            after = document.as_string()
        except (TOMLKitError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
            before = after = ""
        # tomlkit changes blanks, and gathers the parts of a [[list]] that other tables interrupt.
        written = text.replace(" ", "").replace("\t", "").splitlines()
        lines = zip(before.splitlines(), after.splitlines(), strict=False)
        for number, (line, marked) in enumerate(lines):
            if line != marked:
                line = line.replace(" ", "").replace("\t", "")
                is_moved = line in written and written[number : number + 1] != [line]
                return written.index(line) if is_moved else number
        path = path[:-1]
    return 0


# ---- reading -----------------------------------------------------------------------------------


def read(path: str, folder: str = "") -> Document:
    """Read one file. folder: that of the file which the user named, "" where it is this one.

    Raises BadInput where it cannot be read, PolicyError where it is no TOML.
    """
    data = bytes_of(regular(path), LIMIT, "policy", one_line(path))
    return parsed(data, path, folder or os.path.dirname(os.path.realpath(path)))


def parsed(data: bytes, path: str, folder: str) -> Document:
    """Return a file as tables, before any key is checked."""
    from mlbackends.switches import files

    file = one_line(path)
    if len(data) > LIMIT:
        raise BadInput(f"{file} is larger than {LIMIT >> 20} MiB: that is no policy")
    # Before tomllib sees it: a dotted key of a thousand parts costs it hours, brackets its stack.
    whole = data.decode("utf-8", "replace")
    if found := _LONG_KEY.search(whole) or _BRACKETS.search(whole):
        line = whole.count("\n", 0, found.end()) + 1
        raise PolicyError(f"{file}:{line}: nested more than {DEEPEST} deep: no policy is")
    text, tables = files.parsed(data, file)
    document = Document(path, file, folder, text, tables)
    for key, value in tables.items():
        if isinstance(value, dict | list) and is_deeper(value, DEEPEST):
            document.wrong((key,), f"nested more than {DEEPEST} deep: no policy is")
    return document


def beside(document: Document, name: str) -> str:
    """Return the path of a file that a policy names, relative to the policy's own folder.

    It stays in the folder of the policy that the user named, links followed. Raises BadInput with
    what is wrong.
    """
    if os.path.isabs(name) or "\0" in name or "://" in name:
        raise BadInput(f"{shown(name)} must be a path relative to this file")
    path = os.path.join(os.path.dirname(document.path), name)
    if not os.path.realpath(path).startswith(os.path.join(document.folder, "")):
        inside = "must lie in the folder of the policy or below; it leads out of it"
        raise BadInput(f"{shown(name)} {inside}")
    return path


def regular(path: str) -> str:
    """Return the path of a regular file. Raises BadInput for another kind of file: it may never end."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise BadInput(f"{one_line(path)} cannot be read: it is no regular file")
    return path


def one_line(path: str) -> str:
    """Return a path as it can be shown in a message."""
    text = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in path)
    return text if len(text) <= 300 else f"{text[:300]}..."


# ---- keys --------------------------------------------------------------------------------------


class Table(Struct, frozen=True):
    """A table of a file, whose keys are checked. path: the way to it."""

    document: Document
    path: Path
    values: dict[str, Any]

    def wrong(self, message: str, *keys: str | int) -> NoReturn:
        """Raise PolicyError about the table, or about what stands under keys in it."""
        self.document.wrong((*self.path, *keys), message)

    def place(self, *keys: str) -> Place:
        """Return where the table, or a key of it, stands."""
        return self.document.place((*self.path, *keys))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the texts under a key that takes one or several."""
        texts = self.values.get(key, ())
        return (texts,) if isinstance(texts, str) else tuple(texts)

    def tables(self, name: str) -> Iterator["Table"]:
        """Yield each table of a [[list]]."""
        for number, values in enumerate(self.values.get(name, ())):
            yield checked(self.document, (name, number), values, name)


def checked(document: Document, path: Path, values: dict[str, Any], kind: str) -> Table:
    """Return a table without unknown keys and values of another type, with all that are required."""
    table = Table(document, path, values)
    keys = {key.name: key for key in language.TABLES[kind]}
    for name, value in values.items():
        key = keys.get(name)
        if key is None:
            inside = f" in [[{kind}]]" if kind in ("rule", "waive") else ""
            near = suggestion(name, tuple(keys))
            table.wrong(f"there is no such key{inside}{near}", name)
        wanted = language.KINDS[key.kind]
        if not _fits(value, wanted.schema):
            words = {bool: str(value).lower(), dict: "a table", list: "a list"}
            word = words.get(type(value)) or shown(value)
            if isinstance(value, dt.date | dt.time):
                word = f"the time {value}"
            table.wrong(f"must be {wanted.words}, not {word}", name)
        if key.words and value not in key.words:
            near = suggestion(value, key.words)
            table.wrong(f"{shown(value)} is none of {', '.join(key.words)}{near}", name)
    for key in keys.values():
        if key.required and key.name not in values:
            table.wrong(f"lacks {key.name}: {key.doc[0].lower()}{key.doc[1:]}")
    return table


_JSON_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "array": list,
    "object": dict,
    "boolean": bool,
}


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """Tell whether a value is of a kind, by its JSON Schema; a date is TOML's own, and a time is none."""
    if isinstance(value, dt.date | dt.time) or schema.get("format") == "date":
        return schema.get("format") == "date" and type(value) is dt.date
    if "anyOf" in schema:
        return any(_fits(value, each) for each in schema["anyOf"])
    types = schema.get("type", [*_JSON_TYPES])
    names = [types] if isinstance(types, str) else types
    of = [name for name, type_ in _JSON_TYPES.items() if isinstance(value, type_)]
    if not set(names) & set(of[-1:] if isinstance(value, bool) else of):  # true is no number
        return False
    inner = schema.get("items" if isinstance(value, list) else "additionalProperties")
    if inner is not None and isinstance(value, list | dict):
        elements = value.values() if isinstance(value, dict) else value
        return len(value) >= schema.get("minItems", 0) and all(_fits(x, inner) for x in elements)
    if is_number(value) and value < schema.get("minimum", value):
        return False
    return value in schema.get("enum", [value]) and value is schema.get("const", value)

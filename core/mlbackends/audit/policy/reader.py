"""Policy files: read by tomllib, every key checked. An error has FILE:LINE: KEY."""

import datetime as dt
import os
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from msgspec import Struct

from mlbackends.audit.policy import language
from mlbackends.audit.policy.assertions import is_number
from mlbackends.audit.reports import is_deeper
from mlbackends.base import toml_document
from mlbackends.base.errors import BadInput, shown, suggestion
from mlbackends.base.mounts import check
from mlbackends.base.patterns import pattern
from mlbackends.base.toml_document import DEEPEST, Path
from mlbackends.host.files import named_bytes
from mlbackends.model.audit import Place

#: No policy is larger, in bytes: a thousand rules have a tenth of it.
LIMIT = 1 << 20
_PLAIN = pattern(r"(?=.*[0-9A-Za-z])[\w-]{1,80}", re.ASCII)


class PolicyError(BadInput):
    """Something is wrong in a policy file; the message begins with FILE:LINE."""


class Document(toml_document.Document, frozen=True, dict=True, kw_only=True):
    """One policy file that was read. folder: the folder it may refer to files in."""

    path: str
    folder: str

    def place(self, path: Path) -> Place:
        """Return where a key is, or what it would be in."""
        return Place(self.file, self.line(path))

    def wrong(self, path: Path, message: str) -> NoReturn:
        """Raise PolicyError: the file, the line, the key and what is wrong with it."""
        keys = [part for part in path if isinstance(part, str)]
        key = ".".join(part if _PLAIN.fullmatch(part) else repr(part[:80]) for part in keys)
        head = f"{self.file}:{self.line(path)}: "
        raise PolicyError(f"{head}{key}: {message}" if key else f"{head}{message}")


# ---- reading -----------------------------------------------------------------------------------


def read(path: str, folder: str = "") -> Document:
    """Read one file. folder: that of the file which the user named, "" where it is this one.

    Raises BadInput if it cannot be read or is not TOML.
    """
    hint = "`backends audit --init --output policy.toml` writes one from this machine"
    data = named_bytes(regular(path) if folder else path, LIMIT, "policy", one_line(path), hint)
    return parsed(data, path, folder or os.path.dirname(os.path.realpath(path)))


def parsed(data: bytes, path: str, folder: str) -> Document:
    """Return a file as tables, before any key is checked."""
    document = toml_document.parsed(data, one_line(path))
    policy = Document(document.file, document.text, document.tables, path=path, folder=folder)
    for key, value in policy.tables.items():
        if isinstance(value, dict | list) and is_deeper(value, DEEPEST):
            policy.wrong((key,), f"nested more than {DEEPEST} deep")
    return policy


def beside(document: Document, name: str) -> str:
    """Return the path of a file that a policy names, relative to the policy's own folder.

    It stays in the folder of the policy that the user named, links followed. Raises BadInput with
    what is wrong.
    """
    if os.path.isabs(name) or "\0" in name or "://" in name:
        raise BadInput(f"{shown(name)} must be a path relative to this file")
    path = os.path.join(os.path.dirname(document.path), name)
    if not os.path.realpath(path).startswith(os.path.join(document.folder, "")):
        inside = "must be in the policy's folder or one below it"
        raise BadInput(f"{shown(name)} {inside}")
    return path


def regular(path: str) -> str:
    """Return the path of a regular file. Raises BadInput for another kind of file: it may never end."""
    check(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise BadInput(f"{one_line(path)} cannot be read: it is not a regular file")
    return path


def one_line(path: str) -> str:
    """Return a path as it can be shown in a message."""
    text = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in path
    )
    return text if len(text) <= 300 else f"{text[:300]}..."


# ---- keys --------------------------------------------------------------------------------------


class Table(Struct, frozen=True):
    """A table of a file, whose keys are checked. path: the way to it."""

    document: Document
    path: Path
    values: dict[str, Any]

    def wrong(self, message: str, *keys: str | int) -> NoReturn:
        """Raise PolicyError about the table, or about a value in it."""
        self.document.wrong((*self.path, *keys), message)

    def place(self, *keys: str) -> Place:
        """Return the place of the table, or of a key in it."""
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
    keys = {key.name: key for key in (language.TABLES | language.EXPECTED)[kind]}
    for name, value in values.items():
        key = keys.get(name)
        if key is None:
            inside = f" in [[{path[0]}]]" if len(path) == 2 else ""
            near = suggestion(name, tuple(keys))
            table.wrong(f"there is no such key{inside}{near}", name)
        expected = language.KINDS[key.kind]
        if not _fits(value, expected.schema):
            words = {bool: str(value).lower(), dict: "a table", list: "a list"}
            word = words.get(type(value)) or shown(value)
            if isinstance(value, dt.date | dt.time):
                word = f"the time {value}"
            table.wrong(f"must be {expected.words}, not {word}", name)
        if key.words and value not in key.words:
            near = suggestion(value, key.words)
            table.wrong(f"{shown(value)} is not one of {', '.join(key.words)}{near}", name)
    for key in keys.values():
        if key.required and key.name not in values:
            table.wrong(f"lacks {key.name}: {key.doc[0].lower()}{key.doc[1:]}")
    return table


_JSON_TYPES = {
    str: {"string"},
    int: {"integer", "number"},
    float: {"number"},
    bool: {"boolean"},
    list: {"array"},
    dict: {"object"},
}


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a value is of a kind, by its JSON Schema; a date is TOML's own, and a time is none."""
    if isinstance(value, dt.date | dt.time) or schema.get("format") == "date":
        return schema.get("format") == "date" and type(value) is dt.date
    if "anyOf" in schema:
        return any(_fits(value, option) for option in schema["anyOf"])
    types = schema.get("type", ())
    if types and _JSON_TYPES.get(type(value), set()).isdisjoint([types] if isinstance(types, str) else types):
        return False
    inner = schema.get("items" if isinstance(value, list) else "additionalProperties")
    if inner is not None and isinstance(value, list | dict):
        elements = value.values() if isinstance(value, dict) else value
        return len(value) >= schema.get("minItems", 0) and all(_fits(x, inner) for x in elements)
    if is_number(value) and value < schema.get("minimum", value):
        return False
    return value in schema.get("enum", [value]) and value is schema.get("const", value)

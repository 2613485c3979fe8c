"""Whether a table of a policy file has the keys that it may have, and values of the right types."""

import datetime as dt
from typing import Any, NoReturn

from mlbackends.audit.policy.document import Document
from mlbackends.audit.policy.lines import Path
from mlbackends.model import policy as language
from mlbackends.model.audit import Severity
from mlbackends.model.errors import shown, suggestion

_KEYS = {name: {key.name: key for key in keys} for name, keys in language.TABLES.items()}
_REQUIRED = {name: [key for key in keys if key.required] for name, keys in language.TABLES.items()}


def check_keys(document: Document, path: Path, table: Any, kind: str) -> None:
    """Refuse a key that there is not, one that lacks, and a value of another type."""
    known = _KEYS[kind]
    for name, value in table.items():
        if name not in known:
            near = suggestion(name, tuple(known))
            inside = f" in [[{kind}]]" if kind in ("rule", "waive") else ""
            document.wrong((*path, name), f"there is no such key{inside}{near}")
        key = known[name]
        if not _TYPES[key.kind](value) or (key.words and value not in key.words):
            _refuse(document, (*path, name), value, key)
    for key in _REQUIRED[kind]:
        if key.name not in table:
            document.wrong(path, f"lacks {key.name}: {key.doc[0].lower()}{key.doc[1:]}")


def _refuse(document: Document, path: Path, value: Any, key: language.Key) -> NoReturn:
    """Say what a key takes. Raises PolicyError."""
    if not _TYPES[key.kind](value):
        said = language.KINDS[key.kind][0]
        document.wrong(path, f"must be {said}, not {_type_word(value)}")
    near = suggestion(value, key.words)
    document.wrong(path, f"{shown(value)} is none of {', '.join(key.words)}{near}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)


def _are_scalars(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_scalar, value))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_severities(value: Any) -> bool:
    words = [each.value for each in Severity]
    return isinstance(value, dict) and all(each in words for each in value.values())


def _is_date(value: Any) -> bool:
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


_TYPES: dict[str, Any] = {
    "text": lambda value: isinstance(value, str),
    "texts": _are_texts,
    "text or texts": lambda value: isinstance(value, str) or _are_texts(value),
    "truth": lambda value: isinstance(value, bool),
    "true": lambda value: value is True,
    "whole": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "quantity": lambda value: _is_number(value) or isinstance(value, str),
    "count": lambda value: (
        isinstance(value, str)
        or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)
    ),
    "scalar": _is_scalar,
    "value": lambda value: not isinstance(value, dt.date | dt.time),
    "values": _are_scalars,
    "scalar or values": lambda value: _is_scalar(value) or _are_scalars(value),
    "date": _is_date,
    "severities": _are_severities,
    "table": lambda value: isinstance(value, dict),
    "tables": lambda value: (
        isinstance(value, list) and all(isinstance(each, dict) for each in value)
    ),
    "truth or table": lambda value: isinstance(value, bool | dict),
}
assert _TYPES.keys() == language.KINDS.keys()


def _type_word(value: Any) -> str:
    words = {bool: str(value).lower(), dict: "a table", list: "a list"}
    if type(value) in words:
        return words[type(value)]
    if isinstance(value, dt.date | dt.time):
        return f"the time {value}"
    return shown(value)

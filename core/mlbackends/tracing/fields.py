"""The fields of a record by name: what filters compare, and what summaries group by.

Every kind of record has every field; one that it does not have is None, or "" where it is a text.
`arguments.m`, `state.CNR`, `facts.threading` and `values.isa` name an entry of a table.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Any

from msgspec import structs

from mlbackends.base.element_types import element_type
from mlbackends.base.errors import BadInput, UnknownName, nearest
from mlbackends.base.tables import table
from mlbackends.model.signature import (
    Derived,
    PartitionSignature,
    PrimitiveSignature,
    RoutineSignature,
)
from mlbackends.model.trace import Call, Check, Dispatch, Header, Info, Malformed, Message, Record
from mlbackends.tracing.parameters import parameters

Reader = Callable[[Record], Any]

_STRUCTS = (
    *(Header, Call, Dispatch, Check, Message, Info, Malformed),
    *(PrimitiveSignature, PartitionSignature, RoutineSignature, Derived),
)
_TYPES: dict[Any, type[str | float | bool]] = {
    str: str,
    bool: bool,
    int: int,
    int | None: int,
    float | None: float,
}
#: The fields that the records declare, and those that are computed, with the types of known values.
KINDS: dict[str, type[str | float | bool]] = {
    **{
        field.name: _TYPES[field.type]
        for struct in _STRUCTS
        for field in structs.fields(struct)
        if field.type in _TYPES and field.name != "cache_state"
    },
    **dict.fromkeys(("kind", "cache", "parameters"), str),
    **dict.fromkeys(("gflops", "gigabytes_per_second"), float),
    **dict.fromkeys(("executed", "nested", "counted"), bool),
}
TEXTS = tuple(name for name, kind in KINDS.items() if kind is str)
NUMBERS = tuple(name for name, kind in KINDS.items() if kind in (int, float))
TRUTHS = tuple(name for name, kind in KINDS.items() if kind is bool)
TABLES = ("arguments", "state", "facts", "values")
NAMES = tuple(KINDS)

#: What may differ from one equal call to the next.
CHANGING = frozenset({"source", "prefix", "clock", "raw", *NUMBERS} - {"flops", "bytes"})


def field_name(name: str) -> str:
    """Return a field's name, with `-` for `_` forgiven.

    Raises BadInput for an unknown field, with the nearest.
    """
    found = name.strip().replace("-", "_")
    table, dot, entry = name.strip().partition(".")
    if found in NAMES:
        return found
    if dot and entry and table in TABLES:
        return f"{table}.{entry}"
    if table in TABLES:
        raise BadInput(f"{name!r} is a table; name an entry of it", f"such as {table}.{_ENTRIES[table]}")
    near = nearest(found, (*NAMES, *TABLES))
    near = near or [entry for entry in _USUAL if entry.partition(".")[2].lower() == found.lower()]
    hint = f"did you mean {' or '.join(repr(entry) for entry in near)}?" if near else ""
    raise BadInput(f"records have no field {name!r}", hint or _SOME)


_ENTRIES = {"arguments": "m", "state": "CNR", "facts": "threading", "values": "isa"}
#: Entries of tables that may be named without their table.
_USUAL: list[str] = table("tracing/fields")["entries"]
_SOME = (
    "known: operation, shape, dtype, implementation, isa, tracer, duration_ns, thread, process,"
    " arguments.m and more: `backends trace show --help` lists them all"
)


def trace_types(text: str) -> str:
    """Return element types, joined by colons, by the names that traces have: "bf16" for "bfloat16"."""
    names = text.split(":")
    for place, name in enumerate(names):
        with suppress(UnknownName):
            if match := re.fullmatch("([a-z]+)([0-9]+)", element_type(name)):
                names[place] = f"{_KINDS_OF_TYPE[match[1]]}{match[2]}"
    return ":".join(names)


_KINDS_OF_TYPE = {"float": "f", "bfloat": "bf", "int": "s", "uint": "u", "complex": "c"}


def read(name: str) -> Reader:
    """Return what reads a field of a record; texts that are not known are "", all else is None."""
    name = field_name(name)
    if name == "parameters":
        return parameters
    table, dot, entry = name.partition(".")
    if dot:

        def entry_of(record: Record) -> str | None:
            for holder in (record, getattr(record, "signature", None), record.derived):
                value = getattr(holder, table, None)
                if isinstance(value, dict):
                    return value.get(entry)
            return None

        return entry_of
    if name in TEXTS:
        if hasattr(Record, name):
            return attrgetter(name)
        return lambda record: _look(record, name) or ""
    return lambda record: _look(record, name)


def read_text(name: str) -> Callable[[Record], str]:
    """Return what reads a field as a text; "" is what is not known."""
    found = read(name)
    if field_name(name) in TEXTS:
        return found

    def as_text(record: Record) -> str:
        value = found(record)
        if value is None:
            return ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    return as_text


def _look(record: Record, name: str) -> Any:
    value = getattr(record, name, None)
    if value is None:
        signature = getattr(record, "signature", None) or getattr(record, "refused", None)
        value = getattr(signature, name, None)
    # A record and its signature may use one name for a text and for a table (values).
    return value if not isinstance(value, dict | tuple) else None

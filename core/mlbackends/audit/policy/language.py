"""The tables and keys of a policy file, each with what it takes and what it is for: policy.json, read.

The reader refuses what is not there; `backends schema policy` and backends-policy(7) are made from it.
"""

from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.base.tables import table

SCHEMA = "backends.policy/1"
#: What a file has as `schema`.
VERSION = 1


class Kind(Struct, frozen=True):
    """The values that a key accepts, in words for messages and as a JSON Schema."""

    words: str
    schema: dict[str, Any]


class Key(Struct, frozen=True):
    """One key. kind: of KINDS. words: those that a text may be, () for any."""

    name: str
    kind: str
    doc: str
    required: bool = False
    words: tuple[str, ...] = ()


class _Data(Struct, frozen=True, forbid_unknown_fields=True):
    kinds: dict[str, Kind]
    tables: dict[str, tuple[Key, ...]]
    expected: dict[str, tuple[Key, ...]]
    assertions: tuple[str, ...]
    names: dict[str, str]
    short_form: dict[str, str]


_DATA = msgspec.convert(table("audit/policy/language"), _Data)
KINDS = _DATA.kinds
#: The keys of each table, by its name; "" is the file itself.
TABLES = _DATA.tables
#: The same of a file for --expected, which is "expected", and of its tables.
EXPECTED = _DATA.expected
#: The keys of a rule of which it has exactly one, or `check`.
ASSERTIONS = _DATA.assertions
#: How values are named, by example.
NAMES = _DATA.names
#: What `check`, `when` and brackets accept, by example. each, any or none may precede it.
SHORT_FORM = _DATA.short_form


def schema() -> dict[str, Any]:
    """Return the definitions of a JSON Schema: one for the file and one for each table."""
    tables: dict[str, Any] = {}
    for table_name, keys in TABLES.items():
        properties = {
            key.name: {
                **KINDS[key.kind].schema,
                **({"enum": list(key.words)} if key.words else {}),
                "description": key.doc,
            }
            for key in keys
        }
        tables[table_name or "policy"] = {
            "type": "object",
            "properties": properties,
            "required": [key.name for key in keys if key.required],
            "additionalProperties": False,
        }
    policy = tables["policy"]["properties"]
    policy["schema"]["const"] = VERSION
    for name in ("rule", "waive"):
        policy[name]["items"] = {"$ref": f"#/$defs/{name}"}
    policy["hazards"]["anyOf"] = [{"type": "boolean"}, {"$ref": "#/$defs/hazards"}]
    tables["rule"]["oneOf"] = [{"required": [name]} for name in ("check", *ASSERTIONS)]
    tables["rule"]["allOf"] = [
        {
            "if": {"required": ["check"]},
            "then": {"not": {"required": ["fact"]}},
            "else": {"required": ["fact"]},
        }
    ]
    return tables

"""What a policy file may say: its tables and keys, each with what it takes and what it is for.

The reader refuses what is not here, `backends schema policy` and backends-policy(7) are made from it.
"""

from typing import Any

from msgspec import Struct

from mlbackends.model.audit import Severity

SCHEMA = "backends.policy/1"
VERSION = 1
"""What a file has as `schema`."""

MISSING = ("fail", "warn", "skip", "unknown")
QUANTIFIERS = ("each", "any", "none")

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_SCALAR = {"type": ["string", "number", "boolean"]}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("a text", _TEXT),
    "texts": ("a list of texts", _TEXTS),
    "text or texts": ("a text or a list of texts", {"anyOf": [_TEXT, _TEXTS]}),
    "truth": ("true or false", {"type": "boolean"}),
    "true": ("true", {"const": True}),
    "whole": ("a whole number", {"type": "integer"}),
    "quantity": ('a number, or a quantity such as "16GiB"', {"type": ["number", "string"]}),
    "count": (
        'a whole number, or a comparison such as ">=2"',
        {"type": ["integer", "string"], "minimum": 0},
    ),
    "scalar": ("a text, a number, true or false", _SCALAR),
    "value": ("a value", {}),
    "values": (
        "a list of texts, numbers, true or false",
        {"type": "array", "items": _SCALAR, "minItems": 1},
    ),
    "scalar or values": (
        "a text, a number, true, false, or a list of them",
        {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR, "minItems": 1}]},
    ),
    "date": ("a date such as 2027-01-31, without quotes", {"type": "string", "format": "date"}),
    "severities": (
        "a table of severities by code",
        {
            "type": "object",
            "additionalProperties": {"enum": [each.value for each in Severity]},
        },
    ),
    "table": ("a table", {"type": "object"}),
    "tables": ("a list of tables, each under its own [[...]]", {"type": "array"}),
    "truth or table": ("true, false or a table", {}),
}
"""What a key takes: as a message says it, and as the JSON Schema does."""


class Key(Struct, frozen=True):
    """One key. kind: of KINDS. words: those that a text may be, () for any."""

    name: str
    kind: str
    doc: str
    required: bool = False
    words: tuple[str, ...] = ()


_SEVERITIES = tuple(each.value for each in Severity)

ASSERTIONS = (
    Key("present", "truth", "Whether it is there; of a probe: found or better."),
    Key("absent", "true", "It is not there; of a probe: it was looked for and is not there."),
    Key("version", "text", 'A version that fits specifiers of PEP 440: ">=9.10,<10".'),
    Key("equals", "value", "It is this."),
    Key("not_equals", "value", "It is anything but this."),
    Key("one_of", "values", "It is one of these."),
    Key("none_of", "values", "It is none of these."),
    Key("min", "quantity", 'A number that is not less than this; "16GiB" is one.'),
    Key("max", "quantity", "A number that is not more than this."),
    Key("matches", "text", "A text in which this regular expression is found."),
    Key("contains", "scalar or values", "A list, table or text that has this, or all of these."),
    Key("count", "count", 'So many are selected, or in the list or table: 8, ">=1".'),
    Key("at_least", "text", "A word that stands on a ladder, on this rung or above it."),
    Key(
        "equals_snapshot",
        "text",
        "What `names` selects is as in this report, a file beside the policy or below.",
    ),
)
"""What a rule asserts; it has exactly one of these, or `check`."""

RULE = (
    Key("id", "text", "Names the rule in every output; unique and never changed.", required=True),
    Key("check", "text", 'The short form of fact and assertion: "cpu.cores >= 8".'),
    Key("fact", "text", "The dotted name of what is looked at; [*] means each of them."),
    *ASSERTIONS,
    Key(
        "quantifier",
        "text",
        "Of several values how many must fit: each (if nothing is said), any or none.",
        words=QUANTIFIERS,
    ),
    Key("names", "text or texts", "With equals_snapshot: the dotted names, * for any text."),
    Key("except", "text or texts", "With equals_snapshot: the names to leave out."),
    Key("severity", "text", "How bad it is if it fails: error, if not said.", words=_SEVERITIES),
    Key("message", "text", "What is wrong if it fails."),
    Key("why", "text", "Why it matters."),
    Key("hint", "text", "What to do then."),
    Key("command", "text", "What to type for that."),
    Key("documentation", "text", "The address of a page about it."),
    Key("when", "text or texts", "Conditions in the short form; unless all hold it is skipped."),
    Key(
        "missing",
        "text",
        "What it means if the value is not there: fail (if nothing is said), warn, skip or unknown.",
        words=MISSING,
    ),
    Key("needs", "text or texts", "Rules that must have passed; else it is skipped."),
)

WAIVE = (
    Key("rule", "text", "The id of a rule, or the code of a hazard.", required=True),
    Key("until", "date", "The last day on which its failure is accepted.", required=True),
    Key("reason", "text", "Why it is accepted.", required=True),
)

HAZARDS = (
    Key("enable", "truth", "Whether known hazards are looked for: true, if not said."),
    Key("only", "texts", "The codes of those that are looked for, alone."),
    Key("ignore", "texts", "The codes of those that are left out."),
    Key("severity", "severities", "Another severity for a code."),
    Key(
        "fail_on",
        "text",
        "Hazards of this severity or worse count as errors, all others as notes.",
        words=_SEVERITIES,
    ),
)

POLICY = (
    Key("schema", "whole", "The version of this language: 1.", required=True),
    Key("name", "text", "What the policy is for, as a title."),
    Key(
        "when",
        "text or texts",
        "Conditions in the short form; unless all hold, every rule of this file is skipped.",
    ),
    Key("extends", "texts", "Policies to start from: files beside this one or below."),
    Key("added_probes", "texts", "Probes that other packages add and that may not be here."),
    Key("hazards", "truth or table", "Whether known hazards are looked for too, and which."),
    Key("rule", "tables", "What is expected, one table a rule."),
    Key("waive", "tables", "Failures that are accepted until a day."),
)

NAMES = {
    "cpu.capability": "One value: a probe, then a fact or a field of its report.",
    "cudnn": "A probe: its presence, or with version and comparisons its version.",
    "nvidia.devices[*].memory_bytes": "That of every device; [*] stands behind any list or table.",
    "nvidia.devices[0].name": "That of the first one; nvidia.devices.0.name is the same.",
    "nvidia.devices[kind == cuda].name": "That of each whose kind is cuda; conditions are joined by commas.",
    'environment.variables."A.B"': "What has a dot in its name stands in quotes.",
}
"""How values are named, by example."""

SHORT_FORM = {
    "FACT == VALUE, FACT != VALUE": "Equal or not: as numbers, as versions, else as texts.",
    "FACT >= VALUE, FACT <= VALUE, FACT > VALUE, FACT < VALUE, FACT ~= VALUE": "Numbers with or"
    " without a unit (16GiB), versions of PEP 440, and words by their rung: cpu.capability >= AVX2.",
    "FACT in [VALUE, VALUE], FACT not in [VALUE, VALUE]": "Equal to one of them, or to none.",
    "FACT matches VALUE": "A regular expression is found in the text.",
    "FACT contains VALUE": "A list, table or text has it.",
    "FACT at_least VALUE": "A word that is on this rung of its ladder or above.",
    "FACT count OP NUMBER": "So many are selected, or in the list or table.",
    "FACT present, FACT absent": "It is there, or it was looked for and is not.",
}
"""What `check`, `when` and brackets take, by example. each, any or none may stand before it."""

TABLES = {"": POLICY, "rule": RULE, "waive": WAIVE, "hazards": HAZARDS}
"""The keys of each table, by its name; "" is the file itself."""


def schema() -> dict[str, Any]:
    """Return the definitions of a JSON Schema: one for the file and one for each table."""
    tables = {name or "policy": _table(keys) for name, keys in TABLES.items()}
    policy = tables["policy"]["properties"]
    policy["schema"]["const"] = VERSION
    for name in ("rule", "waive"):
        policy[name]["items"] = {"$ref": f"#/$defs/{name}"}
    policy["hazards"]["anyOf"] = [{"type": "boolean"}, {"$ref": "#/$defs/hazards"}]
    names = ("check", *(key.name for key in ASSERTIONS))
    tables["rule"]["oneOf"] = [{"required": [name]} for name in names]
    tables["rule"]["allOf"] = [
        {
            "if": {"required": [name]},
            "then": {"not": {"required": ["fact"]}},
            "else": {"required": ["fact"]},
        }
        for name in ("check",)
    ]
    return tables


def _table(keys: tuple[Key, ...]) -> dict[str, Any]:
    properties = {
        key.name: {
            **KINDS[key.kind][1],
            **({"enum": list(key.words)} if key.words else {}),
            "description": key.doc,
        }
        for key in keys
    }
    return {
        "type": "object",
        "properties": properties,
        "required": [key.name for key in keys if key.required],
        "additionalProperties": False,
    }

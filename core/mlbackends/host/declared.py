"""What probes declare: their facts with types and roles, and the variables that steer a library.

variables.json lists the variables by probe, each with the values that the library accepts: null for any, or
an object with `minimum` for a whole number (for several with commas between them if `list` is true), `one_of`
for words, `pattern` for a regular expression and `meaning` for a description of it. The value is compared in
lower case, or as written if `case` is true.
"""

import os
import re
from functools import cache
from importlib import import_module
from typing import Any

import msgspec
from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.base.registry import PROBES, load, names
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.model.records import Fact, FactValue

_KINDS: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "list[str]": list[str],
    "dict[str, str]": dict[str, str],
    "list[dict[str, str]]": list[dict[str, str]],
    "list[dict[str, Any]]": list[dict[str, Any]],
    "list[dict[str, FactValue]]": list[dict[str, FactValue]],
    "dict[str, list[str]]": dict[str, list[str]],
    "list[dict[str, int | str]]": list[dict[str, int | str]],
    "list[dict[str, int | list[int]]]": list[dict[str, int | list[int]]],
    "list[dict[str, list[int] | str | int]]": list[dict[str, list[int] | str | int]],
}


@cache
def facts_of(probe: str) -> dict[str, Fact]:
    """Return the facts that a probe declares, by name; {} for a probe that is not installed.

    Those of our probes are in facts.json, where a text among them stands for the facts of that name; a probe
    may also have them in its FACTS. All with variables in host/variables.json have the fact `environment`.
    """
    if probe not in names(PROBES):
        return {}
    facts = {fact.name: fact for fact in getattr(load(PROBES, probe), "FACTS", ())}
    for row in _facts_in_file(probe):
        rows = _facts_in_file(row) if isinstance(row, str) else (row,)
        facts |= {fact.name: replace(fact, kind=_KINDS[fact.kind]) for fact in rows if isinstance(fact, Fact)}
    if probe in table("host/variables"):
        steering = Fact("environment", dict[str, str], "The variables that affect it and are set.")
        facts.setdefault("environment", steering)
    return facts


@cache
def _facts_in_file(name: str) -> tuple[Fact | str, ...]:
    """Return the facts in facts.json of a probe, or those of several probes, whose name begins with "_"."""
    row = _facts_file().get(name)
    return msgspec.json.decode(row, type=tuple[Fact | str, ...]) if row else ()


@cache
def _facts_file() -> dict[str, msgspec.Raw]:
    folder = os.path.dirname(str(import_module(PROBES).__file__))
    with open(os.path.join(folder, "facts.json"), "rb") as file:
        return msgspec.json.decode(file.read(), type=dict[str, msgspec.Raw])


def steering(host: Host, probe: str) -> dict[str, FactValue]:
    """Return the fact `environment`: the variables of a probe that are set; {} if none is."""
    listed = table("host/variables").get(probe, ())
    variables = {name: host.env(name) for name in listed if host.env(name)}
    return {"environment": variables} if variables else {}


def not_valid(host: Host, probe: str) -> tuple[Reason, ...]:
    """Return a warning for each variable of a probe with a value that the library does not accept."""
    return tuple(
        Reason("override-invalid", f"{name} is {host.env(name)!r}; it must be {valid}")
        for name, rule in table("host/variables").get(probe, {}).items()
        if rule and host.env(name) and (valid := valid_instead(host.env(name), rule))
    )


def valid_instead(value: str, rule: dict[str, Any]) -> str:
    """Return in words the values that a rule of variables.json accepts, "" if it accepts this one."""
    if "minimum" in rule:
        least, is_list = rule["minimum"], "list" in rule
        # C reads no other digits than these, and no more of them than fit.
        numbers = [
            re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", part)
            for part in (value.split(",") if is_list else [value])
        ]
        if all(number and int(number[0]) >= least for number in numbers):
            return ""
        several = f"whole numbers of at least {least}, separated by commas"
        return several if is_list else f"a whole number of at least {least}"
    if "one_of" in rule:
        words = rule["one_of"]
        fold = str.strip if "case" in rule else lambda word: word.strip().lower()
        return "" if fold(value) in map(fold, words) else "one of " + ", ".join(words)
    compared = value if "case" in rule else value.strip().lower()
    return "" if re.fullmatch(rule["pattern"], compared) else str(rule["meaning"])

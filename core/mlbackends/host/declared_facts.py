"""The facts that each probe declares, with their types and roles."""

import os
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from mlbackends.base.registry import load, names
from mlbackends.base.tables import table
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
    "dict[str, list[str]]": dict[str, list[str]],
    "list[dict[str, int | str]]": list[dict[str, int | str]],
    "list[dict[str, int | list[int]]]": list[dict[str, int | list[int]]],
    "list[dict[str, list[int] | str | int]]": list[dict[str, list[int] | str | int]],
}


@cache
def facts_of(probe: str) -> dict[str, Fact]:
    """Return the facts that a probe declares, by name; {} for one that is not here.

    They stand in its FACTS, and where they are so many that they would hide what it does, in a JSON file
    beside it: cpu.json for cpu.py. One is common to all that have variables in host/variables.json.
    """
    if probe not in names("mlbackends_probes"):
        return {}
    module = load("mlbackends_probes", probe)
    facts = {fact.name: fact for fact in getattr(module, "FACTS", ())}
    path = f"{os.path.splitext(getattr(module, '__file__', None) or '')[0]}.json"
    if os.path.isfile(path):
        kinds = {**_KINDS, "list[dict[str, FactValue]]": list[dict[str, FactValue]]}
        with open(path, "rb") as file:
            declared = msgspec.json.decode(file.read(), type=tuple[Fact, ...])
        facts |= {fact.name: replace(fact, kind=kinds[fact.kind]) for fact in declared}
    if probe in table("host/variables"):
        steering = Fact("environment", dict[str, str], "The variables that steer it and are set.")
        facts.setdefault("environment", steering)
    return facts

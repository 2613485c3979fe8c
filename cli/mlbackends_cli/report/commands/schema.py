"""Print the JSON Schema of what the commands print.

RECORD is one of: report (`backends info --format json`), device (`backends info --device`), flags
(`backends flags list --format json`), outcome (`backends doctor --format json` and `backends audit`),
difference (`backends diff --format json`), devices (`backends explain device --format json`), sdpa-explain,
sdpa-engine, sdpa-list, sdpa-check, sdpa-bench, bench and conform (the commands of these names), fleet,
fleet-facts, fleet-difference and fleet-history (`backends fleet` summarize, facts, diff and history),
envelope (what one node sends to them), top (`backends top --once`), resolution (`backends resolve`), or
policy (the TOML that `backends audit --policy` reads, for editors that check it).

The dialect is 2020-12. Each field of a report has an x-role: fact, metric, identity or volatile.
Within a major version of the schema, which is the number after the slash in "backends.report/1",
fields and facts are only added.

Examples:
  backends schema report > report.schema.json
  backends info --format json | check-jsonschema --schemafile report.schema.json -
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import click
import msgspec

from mlbackends.audit.policy import language
from mlbackends.base import registry
from mlbackends.host.declared import facts_of
from mlbackends.model import (
    audit,
    benched,
    checked,
    conformity,
    device_kinds,
    difference,
    explanation,
    fleet,
    history,
    loading,
    machine_speed,
    switches,
    usage,
)
from mlbackends.model.audit import Outcome
from mlbackends.model.device_kinds import KindPages
from mlbackends.model.difference import Difference
from mlbackends.model.records import SCHEMA, Report
from mlbackends.model.switches import Switches
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import OUTPUT
from mlbackends_cli.output import indented, write

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of `Report`, with a definition for each probe's facts.

    Within a major version of the schema only fields and facts are added; see docs/scripts.md.
    """
    document = _of(Report, SCHEMA)
    probes: dict[str, Any] = {}
    for name in registry.names(registry.PROBES):
        module = registry.load(registry.PROBES, name)
        probes[name] = {
            "$ref": "#/$defs/ProbeReport",
            "description": (module.__doc__ or name).splitlines()[0],  # no text under python -OO
            "properties": {
                "facts": {
                    "type": "object",
                    "properties": {
                        fact.name: {
                            **msgspec.json.schema(fact.kind),
                            "description": fact.doc,
                            "x-role": fact.role,
                            **({"x-order": list(fact.order)} if fact.order else {}),
                        }
                        for fact in facts_of(name).values()
                    },
                    "additionalProperties": False,
                }
            },
        }
    report = document["$defs"]["Report"]
    report["properties"]["probes"] = {
        "type": "object",
        "description": "One report for each probe, under the probe's name.",
        "properties": probes,
        "additionalProperties": {"$ref": "#/$defs/ProbeReport"},
    }
    return document


def _of(record: type, name: str) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a record whose field `schema` has its name."""
    (reference,), definitions = msgspec.json.schema_components([record], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = " ".join(definition["description"].split())
    definitions[record.__name__]["properties"]["schema"] = {"const": name}
    return _document(name, reference, definitions)


def _document(name: str, reference: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {
        "$schema": DIALECT,
        "$id": f"urn:mlbackends:{name.replace('/', ':')}",
        "title": name,
        **reference,
        "$defs": definitions,
    }


#: The schema of each kind of record that a command prints or reads.
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "report": report_schema,
    "flags": partial(_of, Switches, switches.SCHEMA),
    "outcome": partial(_of, Outcome, audit.SCHEMA),
    "difference": partial(_of, Difference, difference.SCHEMA),
    "devices": partial(_of, KindPages, device_kinds.SCHEMA),
    "policy": lambda: _document(
        language.SCHEMA, {"$ref": "#/$defs/policy"}, language.schema()
    ),  # by it editors complete and check a policy file
    "sdpa-explain": partial(_of, explanation.Explanation, explanation.SCHEMA),
    "device": partial(_of, explanation.DescribedDevice, explanation.DEVICE_SCHEMA),
    "sdpa-engine": partial(_of, explanation.EngineExplanation, explanation.ENGINE_SCHEMA),
    "sdpa-list": partial(_of, explanation.BackendList, explanation.LIST_SCHEMA),
    "sdpa-check": partial(_of, checked.Checked, checked.SCHEMA),
    "sdpa-bench": partial(_of, benched.Benched, benched.SCHEMA),
    "bench": partial(_of, machine_speed.MachineSpeed, machine_speed.SCHEMA),
    "conform": partial(_of, conformity.Conformities, conformity.SCHEMA),
    "envelope": partial(_of, fleet.Envelope, fleet.ENVELOPE_SCHEMA),
    "fleet": partial(_of, fleet.Fleet, fleet.SCHEMA),
    "fleet-facts": partial(_of, fleet.FleetFacts, fleet.FACTS_SCHEMA),
    "fleet-difference": partial(_of, fleet.FleetDifference, fleet.DIFFERENCE_SCHEMA),
    "fleet-history": partial(_of, history.History, history.SCHEMA),
    "top": partial(_of, usage.Usage, usage.SCHEMA),
    "resolution": partial(_of, loading.Resolution, loading.SCHEMA),
}


@documented()
@click.argument("record", metavar="RECORD", type=click.Choice(list(SCHEMAS)))
@OUTPUT
def command(record: str, output: str) -> None:
    write(indented(SCHEMAS[record]()), output)

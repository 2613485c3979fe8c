"""A check of many nodes says what a check of each would, and is made once for each configuration."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mlbackends.audit.policy.evaluation import audit
from mlbackends.audit.policy.rules import read
from mlbackends.audit.runner import examine
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.judging import REPORTED, Judge, fleet_outcome, places_of
from mlbackends.fleet.records import united
from mlbackends.model.audit import Outcome, Status
from mlbackends.model.fleet import Envelope
from mlbackends.model.records import Report

REPORTS = Path(__file__).resolve().parents[2] / "reports"
NAMES = ["hgx-h100-sound", "hgx-h100-failing", "slurm-job-mig"]


def documents(name: str, count: int) -> list[Any]:
    """Return a report and others of it with other volatile values: of facts and of devices."""
    rng = random.Random(name)
    text = (REPORTS / f"{name}.json").read_bytes()
    found = []
    for _ in range(count):
        document = msgspec.json.decode(text)
        for probe in document["probes"].values():
            probe["duration_seconds"] = rng.random()
            for device in probe.get("devices", ()):
                for key, value in device.get("volatile", {}).items():
                    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.3:
                        device["volatile"][key] = rng.choice([0, value, 2 * value])
        memory = document["probes"].get("memory", {}).get("facts", {})
        memory["available_bytes"] = rng.randrange(1 << 40)
        found.append(document)
    return found


def plain(outcome: Outcome) -> list[tuple[str, Status, str]]:
    return [(check.code, check.status, check.message) for check in outcome.checks]


@pytest.mark.parametrize("name", NAMES)
def test_an_outcome_is_that_of_each_report(name: str) -> None:
    judge, wanted = Judge(examine), {}
    for at, document in enumerate(documents(name, 12)):
        data = msgspec.json.encode(document)
        wanted[f"n{at}"] = plain(examine(msgspec.json.decode(data, type=Report)))
        judge.visit(f"n{at}", Envelope(report=msgspec.Raw(data)))

    found = {node: plain(outcome) for outcome, nodes in judge.outcomes.values() for node in nodes}
    assert found == wanted


def collected(judge: Judge, documents: list[Any]) -> Collection:
    collection = Collection(tuple(f"n{at}" for at in range(len(documents) + 1)))
    for at, document in enumerate(documents):
        envelope = Envelope(node=f"n{at}", report=msgspec.Raw(msgspec.json.encode(document)))
        judge.visit(collection.add(envelope), envelope)
    return collection


def test_equal_machines_are_judged_once_and_a_silent_node_is_told() -> None:
    some = documents("hgx-h100-sound", 6)
    for document in some:
        for device in document["probes"]["nvidia"]["devices"]:
            device.pop("volatile", None)
    judge = Judge(examine)
    collection = collected(judge, some)
    outcome = fleet_outcome(judge, collection)

    assert judge.evaluated <= 2  # again where the first showed that it reads something volatile
    (silent,) = (check for check in outcome.checks if check.code == REPORTED)
    assert silent.status is Status.UNKNOWN and "n6" in silent.message
    assert outcome.subject == "6 nodes"
    open_ones = [check for check in outcome.with_status(Status.UNKNOWN) if check is not silent]
    assert open_ones
    for check in open_ones:
        assert check.message.startswith("not checked: ") and check.message.count("checked: ") == 1


def test_a_hazard_says_on_how_many_nodes_it_is() -> None:
    some = documents("hgx-h100-sound", 3)
    gpu = some[1]["probes"]["nvidia"]["devices"][2]
    gpu["volatile"]["ecc_uncorrected_since_load"] = 5
    gpu["facts"]["recovery_action"] = "reset"
    judge = Judge(examine)
    collection = collected(judge, some)

    (found,) = (check for check in united(judge.hazards) if check.check.code == "nvidia-ecc-errors")
    assert found.nodes == ("n1",)
    (check,) = (
        check for check in fleet_outcome(judge, collection).failed() if check.code == "nvidia-ecc-errors"
    )
    assert check.message.startswith("1 of 3 nodes (n1): ")


def test_each_node_has_its_own_metrics_as_evidence() -> None:
    some, judge = documents("hgx-h100-sound", 6), Judge(examine)
    totals = [(503 << 30) + at // 2 * 131_072 for at in range(6)]
    for document, total in zip(some, totals, strict=True):
        section = {"presence": "found", "facts": {"total_bytes": total}, "duration_seconds": 0.0}
        document["probes"]["memory"] = section
        for device in document["probes"]["nvidia"]["devices"]:
            device.pop("volatile", None)
        limits = document["probes"]["limits"]["facts"]
        limits["address_space_limit_bytes"] = 400 << 30
        limits.pop("unlimited", None)
    collected(judge, some)
    found = {
        node: hazard.check.evidence["memory.total_bytes"]
        for hazard in judge.hazards
        for node in hazard.nodes
        if "memory.total_bytes" in hazard.check.evidence
    }
    assert found == {f"n{at}": total for at, total in enumerate(totals)}
    assert judge.evaluated <= 4


@pytest.mark.parametrize(
    "rule", ["memory.available_bytes >= 500GB", "nvidia.devices[*].volatile.pcie_width >= 9"]
)
def test_a_rule_about_what_is_volatile_is_checked_on_every_node(rule: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(f'schema = 1\nname = "p"\n[[rule]]\nid = "r"\ncheck = "{rule}"\nmissing = "skip"\n')
    rules, today = [read(str(policy))], dt.date(2026, 1, 1)
    judge = Judge(lambda report: audit(rules, report, today), places_of(rules))
    wanted = {}
    for at, document in enumerate(documents("hgx-h100-sound", 10)):
        data = msgspec.json.encode(document)
        wanted[f"n{at}"] = plain(audit(rules, msgspec.json.decode(data, type=Report), today))
        judge.visit(f"n{at}", Envelope(report=msgspec.Raw(data)))

    found = {node: plain(outcome) for outcome, nodes in judge.outcomes.values() for node in nodes}
    assert {node: [check[:2] for check in checks] for node, checks in found.items()} == {
        node: [check[:2] for check in checks] for node, checks in wanted.items()
    }


def test_a_report_that_lies_about_types_is_not_checked_and_the_others_are() -> None:
    some = documents("hgx-h100-sound", 3)
    some[1]["probes"]["cpu"]["duration_seconds"] = "soon"
    some[2]["probes"]["nvidia"]["devices"][0]["volatile"] = [1]
    judge = Judge(examine)
    outcome = fleet_outcome(judge, collected(judge, some))

    told = [check.message for check in outcome.checks if check.code == REPORTED]
    assert any("n1" in message for message in told) and any("n2" in message for message in told)
    assert len(outcome.checks) > 50

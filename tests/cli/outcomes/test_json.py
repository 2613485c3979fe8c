"""JSON of an outcome: it validates against the schema that we print, and reads back as it was."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest
from hypothesis import given
from outcome_samples import ANY, GOLDEN, hostile, long, sample, written

from mlbackends.model.audit import Outcome
from mlbackends_cli.report.commands.schema import SCHEMAS

VALIDATOR = jsonschema.Draft202012Validator(SCHEMAS["outcome"]())


def test_the_sample_is_as_it_was() -> None:
    assert written("json", sample()) + "\n" == (GOLDEN / "sample.json").read_text(encoding="utf-8")


def test_it_reads_back_as_it_was() -> None:
    assert msgspec.json.decode(written("json", sample()), type=Outcome) == sample()


@given(ANY)
def test_any_outcome_validates(outcome: Outcome) -> None:
    VALIDATOR.validate(json.loads(written("json", outcome)))


@pytest.mark.parametrize(
    "outcome", [hostile(), pytest.param(long(), marks=pytest.mark.slow)], ids=["hostile", "long"]
)
def test_the_worst_validates_and_nothing_is_cut(outcome: Outcome) -> None:
    data = json.loads(written("json", outcome))

    VALIDATOR.validate(data)
    assert len(data["checks"]) == len(outcome.checks)
    assert len(data["checks"][-1]["message"]) == len(outcome.checks[-1].message)


@pytest.mark.parametrize("broken", [{"status": "green"}, {"severity": 3}, {"code": None}])
def test_the_schema_refuses_what_is_none(broken: dict[str, object]) -> None:
    data = json.loads(written("json", sample()))
    data["checks"][0] |= broken

    assert not VALIDATOR.is_valid(data)

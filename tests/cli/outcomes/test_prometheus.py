"""Prometheus text: read back by its own client, and by promtool where that is installed."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written
from prometheus_client.parser import text_string_to_metric_families

from mlbackends.model.audit import Check, Outcome, Problem, Severity, Status
from mlbackends_cli.report import checks

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def families(outcome: Outcome) -> dict[str, Metric]:
    """Write an outcome and read it back; each family stands once, with its help, and no sample twice."""
    read = list(text_string_to_metric_families(written("prometheus", outcome)))
    assert len({family.name for family in read}) == len(read)
    for family in read:
        assert family.type == "gauge" and family.documentation and family.samples
        labels = [tuple(sorted(sample.labels.items())) for sample in family.samples]
        assert len(set(labels)) == len(labels)
        assert all(sample.timestamp is None for sample in family.samples)
    return {family.name: family for family in read}


def value(outcome: Outcome, name: str, **labels: str) -> float:
    (found,) = [
        sample.value for sample in families(outcome)[name].samples if labels.items() <= sample.labels.items()
    ]
    return float(found)


def codes(outcome: Outcome, failed: float) -> set[str]:
    family = families(outcome).get("backends_check_failed")
    found = family.samples if family else []
    return {sample.labels.get("code", "") for sample in found if sample.value == failed}


def test_the_sample_is_as_it_was() -> None:
    assert written("prometheus", sample()) == (GOLDEN / "sample.prom").read_text(encoding="utf-8")


def test_whose_problem_it_is_and_what_the_machine_is_are_labels() -> None:
    failed = Check("a", "t", Severity.ERROR, Status.FAILED, problem=Problem.NODE)
    outcome = with_checks(failed, fingerprints={"cpu": "1:0123456789abcdef"})

    assert value(outcome, "backends_check_failed", code="a", problem="node") == 1
    assert value(outcome, "backends_fingerprint_info", probe="cpu", fp="1:0123456789abcdef") == 1
    assert value(outcome, "backends_fingerprint_info", probe="machine") == 1


@pytest.mark.parametrize("created", ["", "yesterday", "2026-01-02T03:04:05", "9999-99-99"])
def test_a_time_that_is_none_is_left_out(created: str) -> None:
    assert "backends_last_run_timestamp_seconds" not in families(with_checks(created=created))


def test_a_run_on_a_file_is_told_from_one_on_the_machine() -> None:
    failed = Check("a", "t", Severity.ERROR, Status.FAILED)

    assert value(with_checks(failed, subject="n1.json"), "backends_check_failed", subject="n1.json")
    assert "subject" not in written("prometheus", with_checks(failed))


@given(ANY)
def test_any_outcome_is_valid_and_loses_nothing(outcome: Outcome) -> None:
    waived = {checks.line(check.code) for check in outcome.with_status(Status.WAIVED)}

    assert codes(outcome, 1) == failed_codes(outcome) | waived


@pytest.mark.parametrize(
    "outcome", [hostile(), pytest.param(long(), marks=pytest.mark.slow)], ids=["hostile", "long"]
)
def test_the_worst_is_valid_and_loses_nothing(outcome: Outcome) -> None:
    assert failed_codes(outcome) <= codes(outcome, 1)
    promtool = shutil.which("promtool")
    if promtool is not None:  # the reader above needs nothing but Python; this one is Prometheus' own
        done = subprocess.run(
            [promtool, "check", "metrics"],
            input=written("prometheus", outcome).encode(),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

"""GitLab code quality: the keys and words that GitLab documents, and fingerprints that stay."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written

from mlbackends.model.audit import Check, Outcome, Severity, Status

if TYPE_CHECKING:
    from pathlib import Path

SEVERITIES = {"info", "minor", "major", "critical", "blocker"}


def findings(outcome: Outcome) -> list[dict[str, Any]]:
    """Write an outcome, and hold it to what GitLab documents: https://docs.gitlab.com/ci/testing/code_quality."""
    text = written("gitlab", outcome)
    assert not text.startswith("\ufeff")
    found: list[dict[str, Any]] = json.loads(text)
    for finding in found:
        assert finding.keys() >= {
            "description",
            "check_name",
            "fingerprint",
            "severity",
            "location",
        }
        assert all(isinstance(finding[name], str) for name in finding.keys() - {"location"})
        assert finding["severity"] in SEVERITIES
        assert re.fullmatch("[0-9a-f]{32}", finding["fingerprint"])
        path = finding["location"]["path"]
        assert path and not path.startswith(("/", "./", "../"))
        assert finding["location"]["lines"]["begin"] >= 1
    assert len({finding["fingerprint"] for finding in found}) == len(found)
    return found


def test_the_sample_is_as_it_was() -> None:
    assert written("gitlab", sample()) + "\n" == (GOLDEN / "sample.gitlab.json").read_text(encoding="utf-8")


def test_a_machine_s_finding_stands_at_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nodes").mkdir()
    report = tmp_path / "nodes" / "0115.json"
    report.touch()
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path))
    failed = Check("a", "t", Severity.ERROR, Status.FAILED, "12 errors")

    (one,) = findings(with_checks(failed, subject=str(report)))
    (same,) = findings(with_checks(Check("a", "t", Severity.ERROR, Status.FAILED, "13")))

    assert one["location"] == {"path": "nodes/0115.json", "lines": {"begin": 1}}
    assert one["fingerprint"] != same["fingerprint"]  # of another machine


@given(ANY)
def test_any_outcome_is_valid(outcome: Outcome) -> None:
    assert len(findings(outcome)) == len(outcome.failed())


@pytest.mark.parametrize(
    "outcome", [hostile(), pytest.param(long(), marks=pytest.mark.slow)], ids=["hostile", "long"]
)
def test_the_worst_is_valid_and_loses_nothing(outcome: Outcome) -> None:
    names = {finding["check_name"].removeprefix("backends/") for finding in findings(outcome)}

    assert failed_codes(outcome) <= names


def test_another_problem_of_the_same_backend_is_another_finding() -> None:
    first, second = (
        findings(with_checks(Check("flash_cpu", "it computes", status=Status.FAILED, instance=wording)))
        for wording in ("--shape 1,2,8,8", "--shape 1,2,8,8 --causal")
    )

    assert first[0]["fingerprint"] != second[0]["fingerprint"]

"""Feature files, read back by the rules of node-feature-discovery's documentation."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from outcome_samples import ANY, hostile, long, with_checks, written

from mlbackends.model.audit import Check, Outcome, Problem, Severity, Status

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
CREATED = "2026-01-02T12:00:00Z"
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def labels(text: str, now: datetime = NOON) -> dict[str, str]:
    """Return the labels of a feature file as the daemon takes them at a time."""
    assert len(text.encode()) <= 65536
    found: dict[str, str] = {}
    is_valid = True
    for line in text.split("\n"):
        if line.startswith("# +"):
            key, _, value = line.removeprefix("# +").partition("=")
            assert key == "expiry-time"
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value)
            is_valid = datetime.fromisoformat(value) >= now
        elif line and not line.startswith("#") and is_valid:
            namespace, _, line = line.partition("/")
            assert namespace == "feature.node.kubernetes.io"
            key, _, value = line.partition("=")
            assert LABEL.fullmatch(key) and LABEL.fullmatch(value), line
            assert key not in found
            found[key] = value
    return found


def failed(code: str, whose: Problem, severity: Severity = Severity.ERROR) -> Check:
    return Check(code, "t", severity, Status.FAILED, "seen", problem=whose)


UNKNOWN = Check("u", "t", Severity.ERROR, Status.UNKNOWN, problem=Problem.NODE)
FITS = Check("f", "t", problem=Problem.NODE)


def test_a_file_tells_what_is_wrong_and_what_the_machine_is() -> None:
    outcome = with_checks(
        failed("nvidia-gpu-lost", Problem.NODE),
        failed("nvidia-gpu-lost", Problem.NODE),
        failed("tf32-override", Problem.USER, Severity.WARNING),
        created=CREATED,
        fingerprints={"cpu": "1:0123456789abcdef"},
    )

    found = labels(written("nfd", outcome))

    assert re.fullmatch(r"1-[0-9a-f]{16}", found.pop("backends.fingerprint"))
    assert found == {
        "backends.node-problem": "error",
        "backends.user-problem": "warning",
        "backends.failed.nvidia-gpu-lost": "error",
        "backends.failed.tf32-override": "warning",
    }


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([FITS], "none"),
        ([FITS, UNKNOWN], "unknown"),
        ([failed("n", Problem.NODE, Severity.NOTE)], "note"),
        ([failed("n", Problem.NODE, Severity.NOTE), UNKNOWN], "unknown"),
        ([failed("w", Problem.NODE, Severity.WARNING), UNKNOWN], "warning"),
    ],
)
def test_what_is_not_known_is_not_well(checks: list[Check], expected: str) -> None:
    text = written("nfd", with_checks(*checks, created=CREATED))

    assert labels(text)["backends.node-problem"] == expected


def test_a_file_holds_for_an_hour() -> None:
    text = written("nfd", with_checks(FITS, created=CREATED))

    assert labels(text, NOON.replace(hour=13))
    assert not labels(text, NOON.replace(hour=13, second=1))


@pytest.mark.parametrize("created", ["", "yesterday", "2026-01-02T03:04:05", "9999-12-31T23:59:59Z"])
def test_a_file_without_its_time_never_holds(created: str) -> None:
    assert not labels(written("nfd", with_checks(FITS, created=created)))


@pytest.mark.parametrize("outcome", [hostile(), long()], ids=["hostile", "long"])
def test_the_worst_texts_are_labels(outcome: Outcome) -> None:
    labels(written("nfd", outcome))


@given(ANY)
def test_any_outcome_is_a_feature_file(outcome: Outcome) -> None:
    labels(written("nfd", outcome))


def test_a_file_is_never_larger_than_what_is_read() -> None:
    checks = [failed(f"rule-{number:05}", Problem.NODE) for number in range(5000)]

    text = written("nfd", with_checks(*checks, created=CREATED))

    assert 900 < len(labels(text)) < 5000
    assert text.endswith("# and more, which exceed the size of the file\n")

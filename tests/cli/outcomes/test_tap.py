"""TAP 14: read back by our reading of its specification, and by tap.py, which knows 13."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written
from tap.parser import Parser  # type: ignore[import-untyped]

from mlbackends.model.audit import Outcome, Severity, Status
from mlbackends_cli.report import checks

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Point(NamedTuple):
    is_ok: bool
    description: str
    directive: str
    diagnostics: dict[str, object]


POINT = re.compile(r"(not )?ok ([1-9][0-9]*) - ((?:[^\\#]|\\\\)*?)(?: # ((?:SKIP|TODO)\b.*))?")


def points(text: str) -> list[Point]:
    """Read a document; each line must be what the specification has a word for."""
    lines = text.removesuffix("\n").split("\n")
    assert lines.pop(0) == "TAP version 14"
    while lines[0].startswith("#"):
        del lines[0]
    plan = re.fullmatch(r"1\.\.(\d+)( # SKIP .*)?", lines.pop(0))
    assert plan is not None
    found: list[Point] = []
    while lines:
        met = POINT.fullmatch(lines.pop(0))
        assert met is not None
        assert int(met[2]) == len(found) + 1
        block: list[str] = []
        if lines and lines[0] == "  ---":
            end = lines.index("  ...")
            block, lines = lines[1:end], lines[end + 1 :]
        assert all(line.startswith("  ") for line in block)
        told = yaml.load("\n".join(block), LOADER) or {}
        name = met[3].replace("\\\\", "\\")
        found.append(Point(met[1] is None, name, (met[4] or "")[:4], told))
    assert len(found) == int(plan[1])
    return found


def expected(outcome: Outcome) -> list[tuple[bool, str]]:
    told = []
    for check in outcome.checks:
        directive = ""
        if check.status in (Status.SKIPPED, Status.UNKNOWN):
            directive = "SKIP"
        elif check.status is Status.WAIVED or (
            check.status is Status.FAILED and check.severity is not Severity.ERROR
        ):
            directive = "TODO"
        told.append((check.status not in (Status.FAILED, Status.WAIVED), directive))
    return told


def test_the_sample_is_as_it_was() -> None:
    assert written("tap", sample()) == (GOLDEN / "sample.tap").read_text(encoding="utf-8")


def test_diagnostics_tell_what_was_seen_and_what_to_do() -> None:
    point = points(written("tap", sample()))[2]

    assert point.description == "driver-branch: The driver is of the 580 branch"
    assert point.diagnostics["at"] == "policies/h100.toml:67"
    assert point.diagnostics["do"] == "Drain the node and install driver 580."
    assert point.diagnostics["evidence"] == {
        "memory.shm_bytes": "67108864",
        "nvidia.version": "570.86",
    }


def test_no_checks_are_a_plan_of_none() -> None:
    assert points(written("tap", with_checks())) == []


def test_tap_py_counts_the_same() -> None:
    read = list(Parser().parse_text(written("tap", hostile())))
    tests = [each for each in read if each.category == "test"]

    assert {each.category for each in read} == {"version", "diagnostic", "plan", "test"}
    assert [(each.ok, "SKIP" if each.skip else "TODO" if each.todo else "") for each in tests] == (
        expected(hostile())
    )
    assert all(each.yaml_block for each in tests if not each.ok)


@given(ANY)
def test_any_outcome_is_valid_and_loses_nothing(outcome: Outcome) -> None:
    read = points(written("tap", outcome))

    assert [(point.is_ok, point.directive) for point in read] == expected(outcome)
    for point, check in zip(read, outcome.checks, strict=True):
        assert point.description.startswith(checks.line(check.code).replace("#", "\uff03"))
        assert point.diagnostics.get("code", checks.line(check.code)) == checks.line(check.code)


@pytest.mark.parametrize(
    "outcome", [hostile(), pytest.param(long(), marks=pytest.mark.slow)], ids=["hostile", "long"]
)
def test_the_worst_is_valid_and_loses_nothing(outcome: Outcome) -> None:
    read = [point for point in points(written("tap", outcome)) if not point.is_ok]

    assert failed_codes(outcome) <= {point.diagnostics["code"] for point in read}

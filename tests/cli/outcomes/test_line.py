"""One line: at most 80 bytes whatever is found, whose problem it is first, and then the code."""

from __future__ import annotations

from unicodedata import category

import pytest
from hypothesis import given
from outcome_samples import ANY, hostile, long, sample, with_checks, written

from mlbackends.model.audit import Check, Outcome, Problem, Severity, Status

LOST = Check(
    "nvidia-gpu-lost",
    "A GPU is lost",
    status=Status.FAILED,
    message="GPU 3 does not answer",
    problem=Problem.NODE,
)
TWO_RUNTIMES = Check(
    "openmp-two-runtimes",
    "Two runtimes meet",
    status=Status.FAILED,
    message="libgomp and libiomp5 meet",
    problem=Problem.USER,
)
FITS = Check("a", "t")
UNKNOWN = Check("b", "t", Severity.ERROR, Status.UNKNOWN, "not checked: the report has no nvidia")


def line(*checks: Check) -> str:
    return written("line", with_checks(*checks))


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ((FITS, LOST), "[node_problem] nvidia-gpu-lost: GPU 3 does not answer"),
        ((TWO_RUNTIMES, LOST), "[node_problem] nvidia-gpu-lost: GPU 3 does not answer (+1)"),
        ((TWO_RUNTIMES,), "[user_problem] openmp-two-runtimes: libgomp and libiomp5 meet"),
        ((FITS,), "ok: 1 passed"),
        ((FITS, UNKNOWN), "unknown: 1 not checked, 1 passed: b: the report has no nvidia"),
        ((), "ok: there is nothing to check"),
    ],
)
def test_the_line(checks: tuple[Check, ...], expected: str) -> None:
    assert line(*checks) == expected


def test_what_does_not_count_is_no_failure() -> None:
    warning = Check("w", "t", Severity.WARNING, Status.FAILED, "slow")

    found = written("line", with_checks(warning, FITS), fail_on="error")

    assert found == "ok: 1 warning, 1 passed"


def test_the_worst_comes_first_and_what_nobody_classed_has_no_prefix() -> None:
    assert written("line", sample()).startswith("driver-branch: nvidia.driver is 570.86; ")


@pytest.mark.parametrize("outcome", [hostile(), long()], ids=["hostile", "long"])
def test_the_worst_texts_fit(outcome: Outcome) -> None:
    assert_fits(written("line", outcome))


@given(ANY)
def test_any_outcome_fits(outcome: Outcome) -> None:
    assert_fits(written("line", outcome))


def test_a_character_is_not_cut_in_two() -> None:
    for code in ("c", "cc", "ccc"):
        found = line(Check(code, "t", status=Status.FAILED, message="\u4e16" * 80), FITS)

        assert_fits(found)
        assert found.endswith("\u4e16...")


def assert_fits(text: str) -> None:
    assert len(text.encode()) <= 80
    assert not {category(character) for character in text} & {"Cc", "Cs", "Zl", "Zp"}

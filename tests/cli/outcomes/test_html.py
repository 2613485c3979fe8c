"""The HTML page: whole, harmless whatever it holds, and of nothing but itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written
from running import Reader

from mlbackends.model.audit import Check, Severity, Status

if TYPE_CHECKING:
    from mlbackends.model.audit import Outcome

OURS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "div", "b", "span",
    "main", "section", "ul", "li", "strong", "code", "dl", "dt", "dd", "pre", "details", "summary",
    "table", "tbody", "tr", "th", "td", "footer",
}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "open", "scope"}


def read(outcome: Outcome) -> Reader:
    """Read the page of an outcome, which has our elements alone."""
    page = Reader(written("html", outcome))
    assert page.open == []
    assert set(page.tags) <= OURS
    assert {name for name, _ in page.attributes} <= ATTRIBUTES
    return page


def test_the_sample_is_as_it_was() -> None:
    # Without the style sheet and its digest, which another test compares.
    text = re.sub(r"<style>.*?</style>", "<style></style>", written("html", sample()), flags=re.DOTALL)
    text = re.sub(r"sha256-[\w+/=]+", "sha256-DIGEST", text)

    assert text == (GOLDEN / "sample.html").read_text(encoding="utf-8")


def test_what_passed_is_open_where_details_are_asked_for() -> None:
    assert '<details id="passed">' in written("html", sample())
    assert '<details id="passed" open="">' in written("html", sample(), details=True)


def test_where_nothing_failed_the_page_says_so() -> None:
    assert "Nothing is wrong." in read(with_checks()).text


def test_what_could_not_be_checked_is_not_said_to_be_well() -> None:
    unknown = Check("x", "X", status=Status.UNKNOWN, message="the report has no nvidia")
    note = Check("y", "Y", severity=Severity.NOTE, status=Status.FAILED)
    text = read(with_checks(unknown, note)).text

    assert "Nothing is wrong in what could be checked; 1 could not be." in text
    assert "Worth knowing" in text


@given(ANY)
def test_any_outcome_is_a_whole_page_of_our_elements(outcome: Outcome) -> None:
    page = read(outcome)

    assert page.tags.count("li") == len(outcome.failed())


@pytest.mark.parametrize(
    "outcome", [hostile(), pytest.param(long(), marks=pytest.mark.slow)], ids=["hostile", "long"]
)
def test_the_worst_is_whole_and_loses_nothing(outcome: Outcome) -> None:
    text = " ".join(read(outcome).text.split())

    assert all(" ".join(code.split())[:1900] in text for code in failed_codes(outcome))

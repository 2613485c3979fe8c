"""The HTML page: whole, harmless whatever it holds, and of nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written

from mlbackends.model.audit import Check, Severity, Status

if TYPE_CHECKING:
    from mlbackends.model.audit import Outcome

OURS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "div", "b", "span",
    "main", "section", "ul", "li", "strong", "code", "dl", "dt", "dd", "pre", "details", "summary",
    "table", "tbody", "tr", "th", "td", "footer",
}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "open", "scope"}


class Reader(HTMLParser):
    """Holds what is open, and what was met on the way."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: dict[str, str] = {}
        self._texts: list[str] = []
        self.style = ""
        self.feed(page)
        self.close()
        self.text = "".join(self._texts)
        assert self.open == []
        assert set(self.tags) <= OURS
        assert set(self.attributes) <= ATTRIBUTES

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name: value or "" for name, value in attrs if name != "content"}
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.attributes["content"] = dict(attrs)["content"] or ""
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self._texts.append(data)


def test_the_sample_is_as_it_was() -> None:
    # Without the style sheet and its digest, which another test compares.
    text = re.sub(
        r"<style>.*?</style>", "<style></style>", written("html", sample()), flags=re.DOTALL
    )
    text = re.sub(r"sha256-[\w+/=]+", "sha256-DIGEST", text)

    assert text == (GOLDEN / "sample.html").read_text(encoding="utf-8")


def test_nothing_can_run_and_nothing_is_fetched() -> None:
    page = Reader(written("html", sample()))

    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert page.attributes["content"] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"url\(|@import|https?:", page.style)


def test_what_passed_is_open_where_details_are_asked_for() -> None:
    assert '<details id="passed">' in written("html", sample())
    assert '<details id="passed" open="">' in written("html", sample(), details=True)


def test_where_nothing_failed_the_page_says_so() -> None:
    assert "Nothing is wrong." in Reader(written("html", with_checks())).text


def test_what_could_not_be_checked_is_not_said_to_be_well() -> None:
    unknown = Check("x", "X", status=Status.UNKNOWN, message="the report has no nvidia")
    note = Check("y", "Y", severity=Severity.NOTE, status=Status.FAILED)
    text = Reader(written("html", with_checks(unknown, note))).text

    assert "Nothing is wrong in what could be checked; 1 could not be." in text
    assert "Worth knowing" in text


@given(ANY)
def test_any_outcome_is_a_whole_page_of_our_elements(outcome: Outcome) -> None:
    page = Reader(written("html", outcome))

    assert page.tags.count("li") == len(outcome.failed())


@pytest.mark.parametrize(
    "outcome", [hostile(), pytest.param(long(), marks=pytest.mark.slow)], ids=["hostile", "long"]
)
def test_the_worst_is_whole_and_loses_nothing(outcome: Outcome) -> None:
    text = " ".join(Reader(written("html", outcome)).text.split())

    assert all(" ".join(code.split())[:1900] in text for code in failed_codes(outcome))

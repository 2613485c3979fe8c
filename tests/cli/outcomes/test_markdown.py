"""Markdown: rendered, it has our headings, tables and code, and nothing that a text of others made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from markdown_it import MarkdownIt
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written

from mlbackends.model.audit import Outcome, Status
from mlbackends_cli.formats import markdown

if TYPE_CHECKING:
    from markdown_it.token import Token

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = {
    "heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "bullet_list", "list_item",
    "inline", "fence", "text", "code_inline", "strong", "softbreak",
}  # fmt: skip


def tokens(text: str) -> list[Token]:
    """Read a document, and see that it is made of our own kinds of elements."""
    read = READER.parse(text)
    found = [*read, *(child for token in read for child in token.children or ())]
    kinds = {re.sub("_(open|close)$", "", token.type) for token in found}
    assert kinds <= OURS
    return found


def texts(text: str) -> str:
    return "\n".join(token.content for token in tokens(text) if token.type in ("text", "code_inline"))


def without_code(text: str) -> str:
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"(?s)\n(```+).*?\n\1\n", "\n", text))


def rows(text: str) -> list[int]:
    """Return how many cells each row has."""
    counts: list[int] = []
    for token in tokens(text):
        if token.type == "tr_open":
            counts.append(0)
        elif token.type in ("td_open", "th_open"):
            counts[-1] += 1
    return counts


def test_the_sample_is_as_it_was() -> None:
    assert written("markdown", sample()) == (GOLDEN / "sample.md").read_text(encoding="utf-8")


def test_details_show_what_passed() -> None:
    assert "libc-old" not in texts(written("markdown", sample()))
    assert "libc-old" in texts(written("markdown", sample(), details=True))


def test_hostile_text_makes_no_link_mention_or_element() -> None:
    text = written("markdown", hostile(), details=True)

    assert set(rows(text)) == {2, 4}
    outside = without_code(text)
    assert not re.search(r"@[a-z]", outside)
    assert not re.search(r"#\d", outside)
    assert not re.search(r"(?<!\\)<|://|www\.", outside)


@given(ANY)
def test_any_outcome_is_made_of_our_elements(outcome: Outcome) -> None:
    text = written("markdown", outcome, details=True)

    assert len(tokens(text)) > 0
    listed = [token for token in tokens(text) if token.type == "list_item_open"]
    assert len(listed) == len(outcome.checks) - len(outcome.with_status(Status.FAILED))


def test_the_longest_loses_nothing() -> None:
    text = written("markdown", long())

    assert all(f"`{code}`" in text for code in failed_codes(long()))


@pytest.mark.parametrize("room", [10_000_000, 100_000, 5_000, 1_000])
def test_what_fits_is_the_worst(room: int) -> None:
    text = markdown.within(long(), room)

    assert len(text.encode()) <= room
    severities = re.findall(r"^\| \S+ (error|warning|note) \|", text, re.MULTILINE)
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    shown = len(severities)
    assert shown == 3_001 or f"and {3_001 - shown} more findings" in text


def test_where_nothing_fits_there_is_nothing() -> None:
    assert markdown.within(sample(), 20) == ""


def test_an_outcome_without_checks_is_a_document() -> None:
    assert "nothing" in texts(written("markdown", with_checks()))

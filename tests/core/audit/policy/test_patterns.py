"""What matches is what `re` finds, and no pattern keeps us busy."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mlbackends.audit.policy.pattern_reading import read
from mlbackends.audit.policy.patterns import LONGEST_TEXT, Pattern, _Automaton

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        r"\d",
        r"\w",
        r"\W",
        r"\.",
        "^",
        "$",
        r"\b",
        "[]a]",
        "é",
        r"\A",
        r"\Z",
        "{",
        "\\n",
    ]
)


@st.composite
def pattern(draw: st.DrawFn, depth: int = 0) -> str:
    """Draw a pattern of the part of the syntax that is taken."""
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        if depth < 3 and draw(st.booleans()):
            part = draw(st.sampled_from(["({})", "(?:{})"])).format(draw(pattern(depth + 1)))
        else:
            part = draw(ATOMS)
        if part not in ("^", "$", r"\b", r"\A", r"\Z"):
            part += draw(
                st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}", "+?"])
            )
        parts.append(part)
    parts = ["".join(parts), *draw(st.lists(ATOMS, max_size=1))]
    return "|".join(parts)


@given(pattern(), st.text(alphabet="ab1_. \né", max_size=12), st.booleans())
@example("(a|b)*$", "ab\n", False)
@example("x{,}", "", False)
def test_both_ways_of_matching_find_what_re_finds(text: str, subject: str, is_folded: bool) -> None:
    text = f"(?i){text}" if is_folded else text
    subject = subject.upper() if is_folded else subject
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            wanted = re.search(text, subject) is not None
        except (re.error, FutureWarning):
            assume(False)
    assert Pattern(text).search(subject) is wanted
    assert _Automaton(read(text)[0]).search(subject) is wanted


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+b",
        "(a|a)*b",
        "(a*)*b",
        "a?" * 100 + "a" * 100 + "b",
        ".*.*.*.*.*.*.*b",
        "((a{1,9}){1,9}){1,9}b",
    ],
)
def test_a_pattern_that_keeps_re_busy_for_years_ends(text: str) -> None:
    assert not Pattern(text).search("a" * 300)


def test_a_long_text_is_searched_to_its_end() -> None:
    assert Pattern("(ab?)+c$").search("ab" * (LONGEST_TEXT // 2 - 1) + "c")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(", "not closed"),
        (")", "closes nothing"),
        ("[a", "not closed"),
        ("*", "nothing to repeat"),
        ("a**", "repeats a repetition"),
        (r"(a)\1", "not taken here"),
        (r"\B", "not taken here"),
        ("(?=a)", "of these only"),
        ("(?P<name>a)", "of these only"),
        ("^*", "which is a place"),
        ("a{3,2}", "backwards"),
        ("a{99999}", "more than"),
        ("((a{1,900}){1,900})", "too many states"),
        ("(" * 50 + ")" * 50, "parentheses"),
        ("a" * 600, "longer than"),
        ("[b-a]", "cannot be read"),
        ("[[a]]", "cannot be read"),
    ],
)
def test_what_is_no_pattern_says_why(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Pattern(text)


@given(st.text(max_size=40) | st.text(alphabet=r"()[]{}|*+?^$\.,:=!ab01-", max_size=40))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    try:
        Pattern(text).search("ab01" * 10)
    except ValueError:
        return

"""What matches is what `re` finds, and no pattern keeps us busy."""

from __future__ import annotations

import re
import time
import warnings
from contextlib import suppress

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from mlbackends.audit.policy.patterns import LONGEST_TEXT, Pattern
from mlbackends.base.errors import BadInput

ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\.", "^", "$", r"\b", "é", r"\A", "\\n"]
REPEATS = ["", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "+?", "++"]


@st.composite
def pattern(draw: st.DrawFn, depth: int = 0) -> str:
    """Draw a pattern, such as people write and such as nobody should."""
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        if depth < 3 and draw(st.booleans()):
            part = draw(st.sampled_from(["({})", "(?:{})"])).format(draw(pattern(depth + 1)))
        else:
            part = draw(st.sampled_from(ATOMS))
        if part not in ("^", "$", r"\b", r"\A"):
            part += draw(st.sampled_from(REPEATS))
        parts.append(part)
    return "|".join(["".join(parts), *draw(st.lists(st.sampled_from(ATOMS), max_size=1))])


@given(pattern(), st.text(alphabet="ab1_. \né", max_size=12))
@example("(a|b)*$", "ab\n")
def test_a_pattern_that_is_taken_finds_what_re_finds(text: str, subject: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = re.search(text, subject) is not None
        except re.error:
            assume(False)
    try:
        found = Pattern(text).search(subject)
    except ValueError:
        return
    assert found is wanted


@settings(max_examples=60, deadline=None)
@given(pattern(), st.sampled_from(["a" * 300, "ab" * 150, "a" * LONGEST_TEXT, "1a." * 1000]))
@example("a?" * 100 + "a" * 100 + "b", "a" * 300)
@example(".*.*.*.*.*.*.*b", "a" * 300)
@example("x*x*x*y", "x" * 130)
@example("(.*)(.*)!$", "a" * 500)
def test_no_pattern_that_is_taken_keeps_us_busy(text: str, subject: str) -> None:
    start = time.process_time()
    with suppress(ValueError):
        Pattern(text).search(subject)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "text",
    ["(a+)+b", "(a|a)*b", "(a*)*b", "((a{1,9}){1,9}){1,9}b", "(a|aa)+$", "(x+x+)+y", "((a+)*+)*b"],
)
def test_a_pattern_that_keeps_re_busy_for_years_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="repetition inside a repetition"):
        Pattern(text)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("H100|H200|H31", "NVIDIA H200"),
        ("(?i)nvidia.*h100", "NVIDIA H100 80GB"),
        (r"^\d+(\.\d+)?$", "12.4"),
        (r"^\d+(\.\d++)*$", "9.10.2.21"),
        (r"\d+(\.\d+){1,3}", "9.10.2.21"),
        ("(foo|bar)+$", "foobarfoo"),
        ("(?P<name>a)", "a"),
        (".*80GB$", "x" * 4000 + "80GB"),
    ],
)
def test_the_patterns_that_people_write_are_taken(text: str, subject: str) -> None:
    assert Pattern(text).search(subject)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(", "missing \\)"),
        (")", "unbalanced parenthesis"),
        ("[a", "unterminated"),
        ("*", "nothing to repeat"),
        ("a**", "multiple repeat"),
        (r"(a)\1", "refers to a group"),
        ("(?=a)", "looks ahead or behind"),
        ("(?<!a)b", "looks ahead or behind"),
        ("(?:b(?=a))?", "looks ahead or behind"),
        ("a{3,2}", "min repeat greater than max"),
        ("a" * 600, "longer than"),
        ("[b-a]", "cannot be read"),
        ("[[a]]", "cannot be read"),
    ],
)
def test_what_is_no_pattern_says_why(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Pattern(text)


def test_a_text_that_is_too_long_is_not_searched() -> None:
    with pytest.raises(BadInput, match="longer than the 4096 characters"):
        Pattern("a").search("b" * (LONGEST_TEXT + 1))
    with pytest.raises(BadInput, match="too long for a pattern that repeats so often"):
        Pattern("a*a*a*b").search("a" * 4000)


@given(st.text(max_size=40) | st.text(alphabet=r"()[]{}|*+?^$\.,:=!ab01-", max_size=40))
def test_any_text_is_a_pattern_or_is_refused(text: str) -> None:
    try:
        Pattern(text).search("ab01" * 10)
    except ValueError:
        return

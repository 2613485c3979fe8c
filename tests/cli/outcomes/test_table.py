"""The page for people: the worst first, as wide as it is told, and a command that can be copied."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written

from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli.formats import table
from mlbackends_cli.terminal import Page


def test_the_sample_is_as_it_was() -> None:
    assert written("table", sample(), details=True) == (GOLDEN / "sample.txt").read_text(encoding="utf-8")


def test_the_counts_fit_a_terminal_and_are_one_line_elsewhere() -> None:
    many = sample()
    shown = table.outcome(many, Page(width=50, terminal=True)).splitlines()
    piped = table.outcome(many, Page(width=50)).splitlines()

    assert max(map(len, shown[-3:])) <= 50
    assert " ".join(shown[-3:]) == piped[-1]


def test_nothing_found_is_one_line() -> None:
    passed = Check("a", "t")

    assert written("table", with_checks(passed)) == ("Known hazards, this machine: nothing found, 1 passed\n")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_lines_fit_and_a_command_is_never_broken(width: int) -> None:
    command = "pip install " + " ".join(f"package-{n}==1.0" for n in range(30))
    failed = Check("a", "t", Severity.ERROR, Status.FAILED, "word " * 60, "why " * 60, "do " * 60, command)

    lines = written("table", with_checks(failed), width=width).splitlines()

    assert f"  type  {command}" in lines
    assert all(len(line) <= width for line in lines[:-1] if command not in line)


def test_what_is_there_several_times_is_advised_on_once() -> None:
    twice = [
        Check("a", "t", Severity.ERROR, Status.FAILED, f"file {n} is broken", "why", "do", "mend it")
        for n in (1, 2)
    ]

    assert written("table", with_checks(*twice)).splitlines()[:6] == [
        "✗ error a, 2 times",
        "  - file 1 is broken",
        "  - file 2 is broken",
        "  why   why",
        "  do    Do",
        "  type  mend it",
    ]


def test_colours_are_of_the_severity_and_end() -> None:
    text = written("table", sample(), color=True)

    assert "\033[1;31m✗ error driver-branch" in text
    assert "\033[1;33m! warning" in text
    assert all(line.count("\033[1") == line.count("\033[0m") for line in text.splitlines())


def test_a_terminal_without_unicode_gets_none() -> None:
    assert written("table", hostile(), unicode=False).isascii()


def test_without_colour_nothing_reaches_the_terminal_s_controls() -> None:
    text = written("table", hostile(), details=True)

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", text)
    assert not any(line.startswith(("ok ", "::", "#")) for line in text.splitlines())


@given(ANY)
def test_any_outcome_has_a_page(outcome: Outcome) -> None:
    assert written("table", outcome, details=True).endswith("\n")


def test_the_longest_loses_nothing() -> None:
    text = written("table", long())

    assert all(f"{code}, " in text or f"{code}\n" in text for code in failed_codes(long()))
    assert text.count("  - seen ") == 3_000


COMMANDS = ("::stop-commands::token", "##[add-mask]x", "::error::no", "##[group]")


def commands_in(text: str) -> list[str]:
    """Return the lines that GitHub's runner would obey: it trims blanks, and finds ##[ anywhere."""
    return [line for line in text.splitlines() if line.lstrip().startswith("::") or "##[" in line]


@given(
    words=st.lists(st.sampled_from((*COMMANDS, "a", "of", "twenty-four letters long")), min_size=1),
    width=st.integers(40, 120),
    unicode=st.booleans(),
)
def test_no_line_is_a_command_to_githubs_runner(words: list[str], width: int, unicode: bool) -> None:
    said = " ".join(words)
    outcome = with_checks(
        Check(said, said, Severity.ERROR, Status.FAILED, said, said, said, said, {said: said}),
        Check(said, said, Severity.NOTE, Status.UNKNOWN, said),
        Check(words[0], said, Severity.NOTE, Status.UNKNOWN, "another cause"),
        Check(words[-1], said, Severity.NOTE, Status.PASSED, said),
    )

    for details in (False, True):
        text = written("table", outcome, width=width, unicode=unicode, details=details)
        assert commands_in(text) == []
        assert "Known hazards" in text


def test_a_command_in_a_report_is_shown_with_a_dot() -> None:
    failed = Check("a", "t", Severity.ERROR, Status.FAILED, "::stop-commands::t and ##[group]x")

    assert "·::stop-commands::t and ##·[group]x" in written("table", with_checks(failed))
    assert ".::stop-commands::t and ##.[group]x" in written("table", with_checks(failed), unicode=False)

"""Colour, width and characters follow what the user and the terminal say."""

from __future__ import annotations

import pytest
from running import backends

from mlbackends.cli.terminal import wants_color


@pytest.mark.parametrize(
    ("choice", "terminal", "environment", "expected"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": "3"}, True),
        ("auto", False, {"FORCE_COLOR": "0"}, False),
        ("auto", False, {"FORCE_COLOR": ""}, False),
        ("auto", False, {"CLICOLOR_FORCE": "1"}, True),
        ("auto", False, {"CLICOLOR_FORCE": "0"}, False),
        ("auto", True, {"CLICOLOR": "0"}, False),
        ("auto", True, {"CLICOLOR": "0", "CLICOLOR_FORCE": "1"}, True),
        ("auto", True, {"TERM": "dumb"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_decided_in_one_order(
    choice: str, terminal: bool, environment: dict[str, str], expected: bool
) -> None:
    assert wants_color(choice, terminal, environment) is expected


def test_nothing_of_colour_remains_in_a_pipe() -> None:
    assert "\033" not in backends("info", "--depth", "found").stdout


def test_forced_colour_colours_and_no_color_leaves_not_even_bold() -> None:
    assert "\033[" in backends("info", "--depth", "found", environment={"FORCE_COLOR": "1"}).stdout
    plain = {"NO_COLOR": "1", "FORCE_COLOR": "1"}
    assert "\033" not in backends("info", "--depth", "found", environment=plain).stdout


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    done = backends("info", "--depth", "found", environment={"COLUMNS": str(columns)})

    assert max(len(line) for line in done.stdout.splitlines()) <= columns
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())


def test_a_terminal_without_unicode_gets_ascii() -> None:
    done = backends(
        "info", "--depth", "found", environment={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    )

    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "+ computed something right" in done.stdout

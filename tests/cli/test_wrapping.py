"""How text is broken into lines, on pages and in sentences."""

from __future__ import annotations

import pytest

from mlbackends.model.audit import Check, Severity, Status
from mlbackends_cli.report import checks
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import layout, plain
from mlbackends_cli.text.layout import Cell


@pytest.mark.parametrize("room", range(27, 60))
def test_a_command_stays_on_one_line(room: int) -> None:
    commands = ("backends info --absent", "`pip install torch`", "backends doctor")
    text = f"56 more were not found: {commands[0]}, then {commands[1]}, and at last {commands[2]} again"

    for lines in (layout.wrapped(text, room), plain.wrapped(text, room, "", "  ")):
        assert all(sum(command in line for line in lines) == 1 for command in commands), lines
        assert " ".join(line.strip() for line in lines) == text
        assert max(map(len, lines)) <= room


def test_a_command_that_is_wider_than_the_page_is_broken() -> None:
    lines = layout.wrapped("write `backends info --get cpu.capability`", 16)

    assert max(map(len, lines)) <= 16
    assert "\xa0" not in "".join(lines)


@pytest.mark.parametrize("width", range(40, 90, 7))
def test_two_blanks_before_a_text_stay_two_where_it_is_wrapped(width: int) -> None:
    text = "3 nodes: n[1-3]  Segmentation fault  (core dumped), as the job wrote into its log at the end"
    lines = [*layout.lines([[Cell("crashed"), Cell(text)]], Page(width))]

    assert len(lines) > 1
    assert "n[1-3]  Segmentation" in "\n".join(lines)


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("replace the GPU", "Replace the GPU"),
        ("pip install torch", "pip install torch"),
        ("nvidia-smi -c DEFAULT, as root", "nvidia-smi -c DEFAULT, as root"),
        ("/etc/fstab has no such line", "/etc/fstab has no such line"),
        ("OMP_NUM_THREADS=4", "OMP_NUM_THREADS=4"),
        ("torch 2.9 has it", "torch 2.9 has it"),
        ("", ""),
    ],
)
def test_what_to_do_begins_with_a_capital_unless_it_is_a_command(hint: str, shown: str) -> None:
    check = Check("code", "title", Severity.ERROR, Status.FAILED, "message", "", hint)

    assert checks.action(check) == shown

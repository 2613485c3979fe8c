"""What keeps instances on their cores."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.launch.launcher import binding_command, can_start_behind, choose_tool, cpu_ranges
from mlbackends.launch.options import Options
from mlbackends.launch.planning import Instance

if TYPE_CHECKING:
    from pathlib import Path

INSTANCES = (Instance((0, 1), (0,)), Instance((8, 9), ()))
BOTH = ["numactl", "taskset"]


def chosen(works: list[str], **options: bool) -> tuple[str, list[str], list[list[str]]]:
    """Return the tool, what was told of it, and the commands that were tried."""
    tried: list[list[str]] = []

    def can(command: list[str]) -> bool:
        tried.append(command)
        return command[0] in works

    tool, notices = choose_tool(Options(**options), INSTANCES, can)  # type: ignore[arg-type]
    return tool, [level for level, _ in notices], tried


def test_ranges_are_spelled_as_in_torch() -> None:
    assert cpu_ranges((8, 0, 1, 2)) == "0-2,8-8"


def test_numactl_binds_memory_too_where_there_is_some() -> None:
    assert binding_command("numactl", (0, 1), (0, 3)) == ["numactl", "-C", "0-1", "-m", "0,3"]
    assert binding_command("numactl", (8,), ()) == ["numactl", "-C", "8-8"]


def test_taskset_binds_cores() -> None:
    assert binding_command("taskset", (0, 1), (0,)) == ["taskset", "-c", "0-1"]


def test_numactl_is_tried_with_the_very_cores_and_nodes_of_the_instances() -> None:
    assert chosen(BOTH) == ("numactl", [], [["numactl", "-C", "0-1,8-9", "-m", "0"]])


def test_taskset_follows_numactl_with_a_warning() -> None:
    """Report pytorch 131011: in a container whose cpuset lacks CPU 0 numactl may not bind."""
    tool, levels, _ = chosen(["taskset"])
    assert (tool, levels) == ("taskset", ["WARNING"])


def test_taskset_that_was_chosen_needs_no_warning() -> None:
    assert chosen(BOTH, disable_numactl=True)[:2] == ("taskset", [])


def test_without_a_tool_the_launcher_binds() -> None:
    tool, levels, _ = chosen([])
    assert (tool, levels) == ("affinity", ["WARNING", "WARNING", "INFO"])


def test_without_numactl_and_with_taskset_forbidden_the_launcher_binds() -> None:
    tool, _, tried = chosen(["taskset"], disable_taskset=True)
    assert tool == "affinity"
    assert [command[0] for command in tried] == ["numactl"]


def test_with_both_forbidden_nothing_binds_and_nothing_is_tried() -> None:
    assert chosen(BOTH, disable_numactl=True, disable_taskset=True) == ("none", [], [])


@pytest.mark.skipif(sys.platform != "linux", reason="binds on Linux")
def test_a_tool_works_if_a_program_starts_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, body in (("good", 'shift 2; exec "$@"'), ("bad", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert can_start_behind(["good", "-C", "0-0"])
    assert not can_start_behind(["bad", "-C", "0-0"])
    assert not can_start_behind(["none-of-this-name", "-C", "0-0"])

"""What keeps instances on their cores."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.launch.cores import topology_of
from mlbackends.launch.launcher import can_start_behind, numactl, prepare
from mlbackends.launch.options import Options
from mlbackends.launch.planning import Instance

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends.launch.processes import Child

MACHINE = topology_of([(0,), (1,), (2,), (8,)], {0: 0, 1: 0, 2: 1, 8: 1}, (0,), range(9))


def prepared(*, works: bool, **options: bool) -> tuple[list[Child], list[str], list[list[str]]]:
    """Return what would be started in two instances, the warnings, and the binding commands tried."""
    tried: list[list[str]] = []

    def can(command: list[str]) -> bool:
        tried.append(command)
        return works

    plain: dict[str, Any] = {"use_default_allocator": True, "disable_iomp": True, **options}
    given = Options(ninstances=2, no_python=True, **plain)
    children, notices = prepare(given, [sys.executable], {}, topology=MACHINE, works=can)
    return children, [text for level, text in notices if level == "WARNING"], tried


def test_numactl_binds_memory_too_if_there_is_some() -> None:
    assert numactl(Instance((8, 0, 1, 2), (0, 3))) == ["numactl", "-C", "0-2,8", "-m", "0,3"]
    assert numactl(Instance((8,), ())) == ["numactl", "-C", "8"]


def test_numactl_is_tried_with_the_cores_and_nodes_of_the_instances() -> None:
    made, _, tried = prepared(works=True)

    assert tried == [["numactl", "-C", "0-2,8", "-m", "0"]]
    assert [child.command[:3] for child in made] == [
        ("numactl", "-C", "0-1"),
        ("numactl", "-C", "2,8"),
    ]
    assert [child.cpus for child in made] == [(), ()]


def test_without_numactl_the_launcher_binds_with_a_warning() -> None:
    """Report pytorch 131011: in a container whose cpuset lacks CPU 0 numactl may not bind."""
    made, warnings, _ = prepared(works=False)

    assert [child.cpus for child in made] == [(0, 1), (2, 8)]
    assert any("numactl" in text for text in warnings)


def test_with_numactl_disabled_the_launcher_binds_and_nothing_is_tried() -> None:
    made, _, tried = prepared(works=True, disable_numactl=True)

    assert [child.cpus for child in made] == [(0, 1), (2, 8)]
    assert tried == []


def test_with_both_disabled_nothing_binds() -> None:
    made, _, tried = prepared(works=True, disable_numactl=True, disable_taskset=True)

    assert [child.cpus for child in made] == [(), ()]
    assert made[0].command == (sys.executable,)
    assert tried == []


@pytest.mark.skipif(sys.platform != "linux", reason="binds on Linux")
def test_a_tool_works_if_a_program_starts_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, body in (("good", 'shift 2; exec "$@"'), ("bad", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert can_start_behind(["good", "-C", "0-0"])
    assert not can_start_behind(["bad", "-C", "0-0"])
    assert not can_start_behind(["none-of-this-name", "-C", "0-0"])

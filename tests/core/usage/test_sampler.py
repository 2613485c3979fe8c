"""A sample of this machine, and what is chosen of one."""

from __future__ import annotations

import os

import pytest

from mlbackends.host.host import Host
from mlbackends.host.variables import names_of
from mlbackends.model.redaction import Names, redacted_usage
from mlbackends.model.usage import (
    SCHEMA,
    GroupUsage,
    MachineUsage,
    MappedLibrary,
    ProcessUsage,
    Usage,
)
from mlbackends.usage.sampler import SORTS, Sampler, selected

TORCH = (MappedLibrary("torch", "/home/ann/venv/lib/libtorch_cpu.so", "2.13.0", "torch 2.13.0"),)
ROWS = (
    ProcessUsage(
        3,
        "python train.py",
        "ann",
        "python train.py --key=1",
        cpu_percent=150.0,
        threads=9,
        memory_bytes=10,
        libraries=TORCH,
    ),
    ProcessUsage(1, "init", "root", cpu_percent=0.0, threads=1, memory_bytes=30, libraries=()),
    ProcessUsage(2, "Zed", "bob", threads=2, memory_bytes=20, gpus=(0,), gpu_memory_bytes=99),
)
USAGE = Usage(
    SCHEMA, "t", "c", 1.0, False, MachineUsage(4), GroupUsage(), (), len(ROWS), ROWS
)  # fmt: skip


def test_a_sample_is_of_this_machine() -> None:
    with Sampler() as sampler:
        first, second = sampler.sample(), sampler.sample()

    assert (first.machine.cpu_percent, first.group.cpu_percent) == (None, None)
    assert second.interval_seconds > 0 and second.machine.cpu_percent is not None
    assert len(second.machine.core_percents) == second.machine.cpus
    assert second.machine.memory_used_bytes is not None
    assert os.getpid() in {one.pid for one in second.processes}
    assert second.process_count == len(second.processes)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("cpu", [3, 1, 2]),
        ("memory", [1, 2, 3]),
        ("gpu", [2, 3, 1]),
        ("threads", [3, 2, 1]),
        ("name", [1, 3, 2]),
        ("pid", [1, 2, 3]),
    ],
)
def test_processes_are_sorted(sort: str, order: list[int]) -> None:
    assert [one.pid for one in selected(USAGE, sort).processes] == order
    assert sort in SORTS


@pytest.mark.parametrize(
    ("pids", "text", "left"),
    [
        ((2, 9), "", [2]),
        ((), "TORCH 2.13", [3]),
        ((), "zed", [2]),
        ((), "--key", [3]),
        ((1,), "zed", []),
    ],
)
def test_what_is_meant_is_left(pids: tuple[int, ...], text: str, left: list[int]) -> None:
    found = selected(USAGE, "cpu", pids, text)

    assert [one.pid for one in found.processes] == left
    assert found.process_count == 3


def test_redaction_takes_users_commands_and_homes() -> None:
    found = redacted_usage(USAGE, Names("node7", "ann", "/home/ann"))
    ann, root, bob = found.processes

    assert found.redacted
    assert (ann.user, root.user, bob.user) == ("redacted-1", "root", "redacted-2")
    assert ann.command == ""
    assert ann.libraries is not None and ann.libraries[0].path == "~/venv/lib/libtorch_cpu.so"
    assert redacted_usage(found, names_of(Host())).process_count == 3

"""A sample of this machine, and what is chosen of one."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.host import Host
from mlbackends.host.redaction import Names, names_of, redacted_usage
from mlbackends.model.usage import (
    SCHEMA,
    GroupUsage,
    MachineUsage,
    MappedLibrary,
    ProcessUsage,
    Usage,
)
from mlbackends.usage import sampler as sampler_module
from mlbackends.usage.sampler import SORTS, Sampler, selected

if TYPE_CHECKING:
    from pathlib import Path

TORCH = (MappedLibrary("torch", "/home/ann/venv/lib/libtorch_cpu.so", "2.13.0", "torch 2.13.0"),)
ROWS = (
    ProcessUsage(3, "python train.py", "ann", "python train.py --key=1", cpu_percent=150.0, threads=9,
     memory_bytes=10, libraries=TORCH),
    ProcessUsage(1, "init", "root", cpu_percent=0.0, threads=1, memory_bytes=30, libraries=()),
    ProcessUsage(2, "Zed", "bob", threads=2, memory_bytes=20, gpus=(0,), gpu_memory_bytes=99),
)  # fmt: skip
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
    assert os.getpid() in {process.pid for process in second.processes}
    assert second.process_count == len(second.processes)


def test_the_time_that_gpus_and_maps_take_is_in_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0, strftime=time.strftime, gmtime=time.gmtime)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(sampler_module, "time", clock)
    order: list[str] = []
    seconds: list[float] = []

    def wait(name: str, answer: Any) -> Any:
        def read(*arguments: float) -> Any:
            order.append(name)
            seconds.extend(arguments)
            clock.now += 20.0
            return answer

        return read

    with Sampler() as sampler:
        monkeypatch.setattr(sampler, "_gpus", SimpleNamespace(read=wait("gpus", ((), None)), close=int))
        monkeypatch.setattr(sampler, "_own_group", wait("group", GroupUsage()))
        monkeypatch.setattr(sampler, "_processes", SimpleNamespace(read=lambda _: []))
        sampler.sample()
        monkeypatch.setattr(sampler, "_gpus", SimpleNamespace(read=lambda: ((), None), close=int))
        second = sampler.sample()

    # What is counted is read as soon as the time is.
    assert order == ["gpus", "group", "group"]
    assert seconds == [0.0, 20.0] and second.interval_seconds == 20.0


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_own_group_has_its_limits_and_what_they_cost(tmp_path: Path, version: str) -> None:
    cpu = tmp_path / "sys/fs/cgroup/box"
    kind, files = "cgroup2 cgroup rw", {"cpu.max": "50000 100000", "memory.max": "1000000"}
    files |= {
        "memory.current": "400000",
        "cpu.pressure": "some avg10=12.50 avg60=0 avg300=0 total=1",
    }
    if version == "v1":
        kind, files = "cgroup cgroup rw,cpu,cpuacct,memory", {"cpu.cfs_quota_us": "50000"}
        files |= {"cpu.cfs_period_us": "100000", "memory.limit_in_bytes": "1000000"}
        files |= {"memory.usage_in_bytes": "400000", "cpuacct.usage": "1000"}
        cpu = tmp_path / "sys/fs/cgroup/cpu/box"
    point = cpu.parent.as_posix().removeprefix(tmp_path.as_posix())
    own = tmp_path / "proc/self"
    for folder in (cpu, own):
        folder.mkdir(parents=True, exist_ok=True)
    (own / "cgroup").write_text("0::/box\n" if version == "v2" else "3:cpu,cpuacct,memory:/box\n")
    (own / "mountinfo").write_text(f"30 20 0:26 / {point} rw - {kind}\n")
    for name, text in files.items():
        (cpu / name).write_bytes((text + "\n").encode())
    stat = "nr_periods {}\nnr_throttled {}\n" + "usage_usec {}\n" * (version == "v2")
    (cpu / "cpu.stat").write_text(stat.format(10, 2, 1000))
    with Sampler(Host(str(tmp_path)), str(tmp_path / "proc")) as sampler:
        first = sampler.sample().group
        (cpu / "cpu.stat").write_text(stat.format(14, 5, 2000))
        second = sampler.sample().group

    assert (first.throttled_percent, second.throttled_percent) == (None, 75.0)
    assert (second.cpus, second.memory_bytes, second.memory_limit_bytes) == (0.5, 400000, 1000000)
    assert second.cpu_percent is not None
    assert (second.cpu_percent > 0) == (version == "v2")
    assert second.pressure.get("cpu", 12.5) == 12.5


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
    assert [process.pid for process in selected(USAGE, sort).processes] == order
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

    assert [process.pid for process in found.processes] == left
    assert found.process_count == 3


def test_redaction_takes_users_commands_and_homes() -> None:
    found = redacted_usage(USAGE, Names("node7", "ann", "/home/ann"))
    ann, root, bob = found.processes

    assert found.redacted
    assert (ann.user, root.user, bob.user) == ("redacted-1", "root", "redacted-2")
    assert ann.command == ""
    assert ann.libraries is not None and ann.libraries[0].path == "~/venv/lib/libtorch_cpu.so"
    assert redacted_usage(found, names_of(Host())).process_count == 3

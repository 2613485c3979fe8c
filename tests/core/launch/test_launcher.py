"""A launch from options to commands, and for real."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mlbackends.host.host import Host
from mlbackends.launch.cores import Topology, read_topology
from mlbackends.launch.launcher import launch, prepare, program_command
from mlbackends.launch.options import Options

HOSTS = Path(__file__).resolve().parents[2] / "hosts"
PLAIN = {"use_default_allocator": True, "disable_iomp": True}


def recorded(name: str) -> Topology:
    return read_topology(Host(str(HOSTS / f"{name}.machine")))


def commands(name: str, **options: int | bool | str) -> list[tuple[str, ...]]:
    """Return what stands before the program, of each instance on a recorded machine."""
    children, _ = prepare(
        Options(**PLAIN, **options),  # type: ignore[arg-type]
        ("serve.py",),
        {},
        topology=recorded(name),
        works=lambda command: True,
    )
    return [child.command[:-3] for child in children]


def test_each_node_of_a_server_gets_an_instance_with_its_memory() -> None:
    assert commands("hgx-h100-eight-gpus", throughput_mode=True) == [
        ("numactl", "-C", "0-31", "-m", "0"),
        ("numactl", "-C", "32-63", "-m", "1"),
    ]


def test_memory_is_not_bound_to_a_node_that_has_none() -> None:
    made = commands("epyc-eight-nodes", throughput_mode=True)
    assert made[4] == ("numactl", "-C", "16-19", "-m", "4")
    assert made[5] == ("numactl", "-C", "20-23")


def test_in_a_container_only_its_own_cpus_are_dealt_out() -> None:
    assert commands("docker-cgroup1", ninstances=2) == [
        ("numactl", "-C", "0,2", "-m", "0"),
        ("numactl", "-C", "4,6", "-m", "0"),
    ]


@pytest.mark.parametrize(
    ("options", "command", "made"),
    [
        ({}, ("s.py", "a"), ["-u", "s.py", "a"]),
        ({"module": True}, ("json.tool", "-h"), ["-u", "-m", "json.tool", "-h"]),
    ],
)
def test_python_starts_scripts_and_modules(
    options: dict[str, bool], command: tuple[str, ...], made: list[str]
) -> None:
    assert program_command(Options(**options), command) == [sys.executable, *made]  # type: ignore[arg-type]


def test_without_python_the_command_stands_as_it_is() -> None:
    assert program_command(Options(no_python=True), ("./server", "-m")) == ["./server", "-m"]


@pytest.mark.parametrize(
    ("options", "command", "seen"),
    [
        ({"latency_mode": True, "throughput_mode": True}, ("x",), "cannot be combined"),
        ({}, ("server",), "--no-python"),
        ({}, (), "no program was given"),
        ({"module": True, "no_python": True}, ("x",), "--module needs python"),
    ],
)
def test_a_command_that_makes_none_is_refused(
    options: dict[str, bool], command: tuple[str, ...], seen: str
) -> None:
    with pytest.raises(RuntimeError, match=seen):
        program_command(Options(**options), command)  # type: ignore[arg-type]


def test_a_program_that_is_not_there_is_refused_before_anything_is_tried() -> None:
    def fail(command: list[str]) -> bool:
        raise AssertionError(command)

    options = Options(no_python=True, **PLAIN)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no program 'none-of-this'"):
        prepare(options, ("none-of-this",), {}, topology=recorded("ivy-bridge-desktop"), works=fail)


def test_the_command_is_reported_without_its_secrets() -> None:
    options = Options(no_python=True, **PLAIN)  # type: ignore[arg-type]
    command = ("true", "--hf-token=hunter2", "https://joe:hunter2@x/")
    told = prepare(options, command, {}, topology=recorded("ivy-bridge-desktop"), works=lambda _: False)[1]

    assert any("--hf-token=redacted https://redacted@x/" in notice for _, notice in told)
    assert not any("hunter2" in notice for _, notice in told)


@pytest.mark.skipif(sys.platform != "linux", reason="launches are Linux's")
@pytest.mark.parametrize("disable_numactl", [False, True])
@pytest.mark.parametrize("disable_taskset", [False, True])
def test_a_real_program_runs_on_its_cores_with_its_environment(
    disable_numactl: bool, disable_taskset: bool, tmp_path: Path
) -> None:
    cpu = max(os.sched_getaffinity(0))
    code = (
        "import os, sys\n"
        "with open(sys.argv[1], 'w') as file:\n"
        "    print(os.sched_getaffinity(0), os.environ['OMP_NUM_THREADS'], os.environ['MINE'], file=file)\n"
        "raise SystemExit(5)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    options = Options(
        core_list=str(cpu),
        use_default_allocator=True,
        disable_iomp=True,
        disable_numactl=disable_numactl,
        disable_taskset=disable_taskset,
    )
    environment = {**os.environ, "MINE": "yes"}
    environment.pop("OMP_NUM_THREADS", None)
    told: list[str] = []
    code_seen = launch(
        options,
        (str(script), str(tmp_path / "seen")),
        environment,
        say=lambda level, sentence: told.append(sentence),
    )
    assert code_seen == 5
    cpus, threads, mine = (tmp_path / "seen").read_text().rsplit(maxsplit=2)
    assert (threads, mine) == ("1", "yes")
    everywhere = disable_numactl and disable_taskset
    assert cpus == repr(os.sched_getaffinity(0) if everywhere else {cpu})
    assert any("script.py" in sentence for sentence in told)

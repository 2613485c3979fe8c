"""`backends fleet run`, `envelope` and `recipe`, over a stub of srun and an engine of a test's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import Raw
from running import backends

from mlbackends.audit.reports import report_of
from mlbackends.base import registry
from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope
from mlbackends_cli.fleet.commands.fleet import ENGINES, as_json
from mlbackends_cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlbackends.fleet.engines import Job

MACHINE = Path(__file__).parents[1] / "hosts" / "cluster-modules-node.machine"
SRUN = """#!/bin/sh
cd FOLDER
for word; do last=$word; done
echo "$@" >> words
case "$*" in
    *" true") echo 'srun: error: Task launch for StepId=1.0 failed on node n3: Communication failure' >&2 ;;
    *) cat n1 n2; echo 'srun: error: n4: task 3: Segmentation fault' >&2 ;;
esac
"""

posix = pytest.mark.skipif(os.name == "nt", reason="the stub is a shell script")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Add an engine by the name of test, as an entry point does; return the jobs that it is given."""
    jobs: list[Job] = []
    added = ModuleType("added_engine")

    def run(job: Job, take: Callable[[Envelope], None]) -> None:
        jobs.append(job)
        report = Raw(msgspec.json.encode(report_of(str(MACHINE))))
        take(Envelope(node="n1", report=report))

    def each(where: str, function: Callable[[Any], Any], items: list[Any]) -> Iterator[tuple[int, Any]]:
        yield from ((place, function(item)) for place, item in enumerate(items))

    vars(added).update(run=run, each=each)
    monkeypatch.setitem(sys.modules, "added_engine", added)
    points = {"mlbackends.engines": {"test": "added_engine"}}
    monkeypatch.setattr(registry, "_entry_points", lambda: points)
    registry.names.cache_clear()
    registry.load.cache_clear()
    return jobs


def test_an_engine_of_another_package_runs_and_who_is_missing_is_named(engine: list[Job]) -> None:
    done = backends(
        "fleet", "run", "--engine", "test=head:1", "--expect", "n[1-2]", "--format", "json",
        "--program", "/opt/backends", "--timeout", "9", "--", "info", "--depth", "found",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (job,) = engine
    assert (job.where, job.seconds) == ("head:1", 9.0)
    assert job.command == (
        "/opt/backends", "fleet", "envelope", "--timeout", "9", "--", "info", "--depth", "found",
    )  # fmt: skip
    (silent,) = json.loads(done.stdout)["silent"]
    assert (silent["nodes"], silent["status"]) == (["n2"], "missing")
    done = backends("fleet", "run", "--engine", "test", "--expect", "2", "--fail-on", "incomplete")
    assert done.returncode == 1


def test_the_workers_of_an_engine_read_a_fleet(engine: list[Job], tmp_path: Path) -> None:
    report = Raw(msgspec.json.encode(report_of(str(MACHINE))))
    for node in ("n1", "n2"):
        lines = frames(Envelope(node=node, report=report))
        (tmp_path / f"{node}.frame").write_text("".join(f"{line}\n" for line in lines))
    words = ("fleet", "summarize", str(tmp_path), "--expect", "n[1-3]", "--format", "json")
    alone, by_workers = backends(*words), backends(*words, "--engine", "test=head:1")
    assert by_workers.returncode == 0, by_workers.stderr
    assert json.loads(by_workers.stdout) == json.loads(alone.stdout)
    for refused, error in [
        (("-", "--engine", "test"), "cannot read standard input"),
        (("--engine", "test"), "cannot read standard input"),
        (("--engine", "slurm", str(tmp_path)), "has no workers"),
        (("--engine", "test", "--dask", "x", str(tmp_path)), "name one engine"),
    ]:
        done = backends("fleet", "summarize", *refused)
        assert (done.returncode, error in done.stderr) == (2, True), done.stderr


@posix
def test_srun_is_used_as_it_is_there(tmp_path: Path) -> None:
    report = Raw(msgspec.json.encode(report_of(str(MACHINE))))
    for node in ("n1", "n2"):
        lines = frames(Envelope(node=node, report=report))
        (tmp_path / node).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "srun").write_text(SRUN.replace("FOLDER", str(tmp_path)))
    (tmp_path / "srun").chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-5]",
    }  # fmt: skip
    done = backends("fleet", "run", "--slurm", "--format", "json", environment=variables)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    silent = {node: group["status"] for group in found["silent"] for node in group["nodes"]}
    assert silent == {"n3": "unreachable", "n4": "error", "n5": "missing"}
    assert found["configurations"][0]["nodes"] == ["n1", "n2"]
    empty, step = (tmp_path / "words").read_text().splitlines()
    assert "--nodelist=n1,n2,n3,n4,n5" in empty
    assert "--nodelist=n1,n2,n4,n5" in step
    assert step.endswith("fleet envelope --timeout 60 --")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "name an engine"),
        (("--slurm", "--mpi"), "name one engine"),
        (("--engine", "nonesuch"), "there is no engine"),
        (("--slurm", "--", "snapshot"), "has no --format json"),
        (("--slurm", "--", "info", "--format", "table"), "remove --format"),
        (("--slurm", "--", "nonesuch"), "there is no command"),
        (("--dask", "127.0.0.1:1", "--hosts", "n[1-"), "not a node set"),
    ],
)
def test_what_cannot_be_run_is_refused(words: tuple[str, ...], error: str) -> None:
    done = backends("fleet", "run", *words)
    assert done.returncode == 2
    assert error in done.stderr


def test_json_is_asked_of_the_command_and_not_of_its_arguments() -> None:
    assert as_json((), main) == ("info", "--format", "json")
    assert as_json(("sdpa", "check", "--causal"), main) == (
        "sdpa", "check", "--format", "json", "--causal",
    )  # fmt: skip
    words = ("audit", "--", "--format")
    assert as_json(words, main) == ("audit", "--format", "json", "--", "--format")


@pytest.mark.parametrize("engine_name", ENGINES)
def test_each_engine_has_a_recipe(engine_name: str) -> None:
    done = backends("fleet", "recipe", engine_name, "--", "sdpa", "check", "--causal")
    assert done.returncode == 0
    assert "fleet summarize" in done.stdout
    assert "envelope" in done.stdout
    assert "{" not in done.stdout.replace("${", "") or engine_name in {"kubernetes", "ray", "dask"}
    assert "causal" in done.stdout
    for code in done.stdout.split("<<'END'")[1:]:
        if engine_name in {"ray", "dask"}:
            compile(code.partition("\n")[2].partition("\nEND")[0], engine_name, "exec")
        else:
            import yaml  # type: ignore[import-untyped]

            assert yaml.safe_load(code.partition("\n")[2].partition("\nEND")[0])["kind"] == "Job"


def stub(folder: Path, name: str, text: str) -> dict[str, str]:
    """Write a program of a cluster as a shell script; return a PATH with it. n1 to n9: frames beside it."""
    report = Raw(msgspec.json.encode(report_of(str(MACHINE))))
    for node in (f"n{at}" for at in range(1, 10)):
        lines = frames(Envelope(node=node, report=report))
        (folder / node).write_text("".join(f"{line}\n" for line in lines))
    (folder / name).write_text(f"#!/bin/sh\ncd {folder}\n{text}\n")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def silent_of(text: str) -> dict[str, tuple[list[str], str]]:
    """Return the nodes without a report of a fleet in JSON, by status, with the error."""
    return {group["status"]: (group["nodes"], group["error"]) for group in json.loads(text)["silent"]}


@posix
def test_a_host_that_refuses_does_not_lose_the_others_of_open_mpi(tmp_path: Path) -> None:
    # As plm_rsh does: no rank of the job starts where one daemon does not. n5 is not named.
    variables = stub(
        tmp_path,
        "mpirun",
        """case "$*" in *--version*) echo 'mpirun (Open MPI) 4.1.6'; exit;; esac
while [ "$1" != --host ]; do shift; done
hosts=$2
while [ "$1" != sh ]; do shift; done
case $hosts in
    *n3*) echo "ssh: connect to host n3 port 22: Connection refused" >&2; exit 1 ;;
    *n5*) echo "ORTE was unable to reliably start one or more daemons." >&2; exit 1 ;;
esac
for host in $(echo $hosts | tr , ' '); do
    case $host in
        n4) code=127 ;;
        n6) code=124 ;;
        n7) code=139 ;;
        *) cat $host; continue ;;
    esac
    NODE_NAME=$host "$1" "$2" "$3" "$4" sh -c "exit $code"  # sh -c REPORTING sh: what runs on a node
done""",
    )
    words = ("fleet", "run", "--mpi", "--format", "json", "--hosts")
    for hosts in ("n[1-5]", "n[1-3,5,9]"):
        done = backends(*words, hosts, environment=variables)
        assert done.returncode == 0, done.stderr
        fleet = json.loads(done.stdout)
        reported = {node for configuration in fleet["configurations"] for node in configuration["nodes"]}
        assert reported == ({"n1", "n2"} if hosts == "n[1-5]" else {"n1", "n2", "n9"})
        silent = {node: group for group in fleet["silent"] for node in group["nodes"]}
        assert silent["n3"]["status"] == "unreachable"
        assert silent["n3"]["error"] == "ssh: connect to host n3 port 22: Connection refused"
        assert silent["n5"]["status"] == "error" and "unable" in silent["n5"]["error"]
    failed = json.loads(backends(*words, "n[1,3-4,6-7]", environment=variables).stdout)
    assert {
        node: (group["status"], group["error"]) for group in failed["silent"] for node in group["nodes"]
    } == {
        "n3": ("unreachable", "ssh: connect to host n3 port 22: Connection refused"),
        "n4": ("error", "exit code 127: the command was not found"),
        "n6": ("timeout", "exit code 124: it did not finish in time"),
        "n7": ("error", "exit code 139: segmentation fault"),
    }


@posix
def test_hosts_that_refuse_ssh_are_one_line(tmp_path: Path) -> None:
    variables = stub(
        tmp_path,
        "ssh",
        """for word; do case "$word" in n[0-9]*) host=$word; break;; esac; done
case $host in
    n1|n2) cat $host ;;
    n8) cat $host; exit 70 ;;
    n9) echo "bash: line 1: timeout: command not found" >&2; exit 127 ;;
    *) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255 ;;
esac""",
    )
    words = ("fleet", "run", "--hosts", "n[1-9]")
    done = backends(*words, "--format", "json", environment=variables)
    assert done.returncode == 0, done.stderr
    assert silent_of(done.stdout) == {
        "unreachable": (
            ["n3", "n4", "n5", "n6", "n7"],
            "exit code 255: ssh: connect to host NODE port 22: Connection refused",
        ),
        "error": (["n9"], "exit code 127: bash: line 1: timeout: command not found"),
    }
    assert json.loads(done.stdout)["flagged"] == {"n8": "exit code 70"}
    text = " ".join(backends(*words, environment=variables).stdout.split())
    assert "unreachable 5 nodes: n[3-7]: exit code 255: ssh: connect to host NODE" in text
    nobody = backends("fleet", "run", "--hosts", "n[3-5]", environment=variables)
    assert nobody.returncode == 3 and "3 nodes: 0 reported, 3 unreachable" in nobody.stdout


@posix
def test_a_killed_command_is_late_only_after_its_limit(tmp_path: Path) -> None:
    """`timeout` exits with 137 both if it had to kill the command, and if the kernel did."""
    variables = stub(tmp_path, "ssh", "exit 137")
    found = silent_of(
        backends("fleet", "run", "--hosts", "n[1-2]", "--format", "json", environment=variables).stdout
    )
    assert found == {
        "error": (["n1", "n2"], "exit code 137: it was killed, perhaps because memory ran out"),
    }


@posix
def test_slurm_is_told_to_end_what_it_started(tmp_path: Path) -> None:
    variables = stub(
        tmp_path,
        "srun",
        """case "$*" in *" true") exit ;; esac
trap 'echo terminated > ended; exit 143' TERM
cat n1; touch started; while :; do sleep 0.1; done""",
    )
    variables |= {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-2]"}
    command = [sys.executable, "-m", "mlbackends", "fleet", "run", "--slurm"]
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        (tmp_path / "started").unlink(missing_ok=True)
        (tmp_path / "ended").unlink(missing_ok=True)
        with subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            while not (tmp_path / "started").exists():
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(30) == code
        assert (tmp_path / "ended").read_text() == "terminated\n"

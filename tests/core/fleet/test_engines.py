"""What an engine hands on: a command that hangs, crashes or prints something else costs its node alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import streams

from mlbackends.base import registry
from mlbackends.base.errors import BadInput, Incomplete, MlBackendsError
from mlbackends.fleet import payload
from mlbackends.fleet.engines import Job, envelopes_of, from_worker, ray, record_of, run_launcher, slurm
from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope, Status

posix = pytest.mark.skipif(os.name == "nt", reason="launchers of clusters are POSIX programs")


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("import time; time.sleep(60)", Status.TIMEOUT, "it did not finish within 0.5 s"),
        ("import sys; sys.exit('no such option')", Status.ERROR, "exit code 1: no such option"),
        ("print('hello')", Status.ERROR, "it printed no record but: 'hello'"),
        ("print('{\"schema\": 1')", Status.ERROR, "it printed no JSON"),
        ("print('{}')", Status.OK, ""),
    ],
)
def test_a_command_that_prints_no_record_is_an_envelope_that_says_so(
    code: str, status: Status, error: str
) -> None:
    found = record_of(python(code), 0.5 if status is Status.TIMEOUT else 30)
    assert (found.status, found.error[: len(error)]) == (status, error)


@posix
def test_a_crash_is_named_by_its_signal() -> None:
    found = record_of(python("import os; os.kill(os.getpid(), 11)"), 30)
    assert found.status is Status.ERROR
    assert "SIGSEGV" in found.error


@posix
def test_what_a_command_leaves_behind_dies_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    code = f"import subprocess, time; subprocess.Popen(['sh', '-c', 'sleep 1; touch {mark}']); time.sleep(9)"
    assert record_of(python(code), 0.6).status is Status.TIMEOUT
    import time

    time.sleep(0.8)
    assert not mark.exists()


def test_the_payload_needs_the_standard_library_alone() -> None:
    import ast

    for module in (payload, sys.modules["mlbackends.host.command"]):
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        names = {statement.module for statement in tree.body if isinstance(statement, ast.ImportFrom)}
        ours = {name for name in names if name and name.startswith("mlbackends")}
        assert ours <= {"mlbackends.host.command"}


def test_output_of_a_node_without_a_report_is_what_failed() -> None:
    failure = Envelope(node="n1", status=Status.TIMEOUT, error="late")
    assert envelopes_of(b"", "n1", failure) == [failure]
    (garbled,) = envelopes_of(b"BK1 nonsense\n", "n1")
    assert garbled.status is Status.GARBLED
    report = "\n".join(frames(streams.envelope_of("other"))).encode()
    assert [envelope.node for envelope in envelopes_of(report, "n1", failure)] == ["n1"]


def test_a_report_that_was_cut_keeps_the_exit_code_of_its_command() -> None:
    """Of frames, of a record, and of a line that is damaged."""
    whole = [line.encode() for line in frames(streams.envelope_of("n1", text=os.urandom(900).hex()))]
    failure = Envelope(node="n1", status=Status.ERROR, error="exit code 7: disk full")
    for output, what in (
        (b"\n".join(whole[:-1]), f"{len(whole) - 1} of {len(whole)} pieces arrived"),
        (streams.report_of()[:-9], "its report is incomplete; --format frame avoids that"),
        (b"BK1 n1 cut", "of what it printed came: damaged frames"),
    ):
        (found,) = envelopes_of(output, "n1", failure)
        assert (found.status, found.error) == (Status.GARBLED, f"{what}; exit code 7: disk full")
    late = Envelope(node="n1", status=Status.TIMEOUT, error="it was stopped")
    assert envelopes_of(whole[0], "n1", late) == [late]

    srun = b"srun: error: n1: task 0: Exited with exit code 7"
    assert streams.collected([*whole[:-1], srun]).silent["n1"] == (
        Status.GARBLED, f"{len(whole) - 1} of {len(whole)} pieces arrived; task 0: Exited with exit code 7",
    )  # fmt: skip


def test_workers_that_call_themselves_alike_stay_two_nodes() -> None:
    taken: set[str] = set()
    output = "\n".join(frames(streams.envelope_of("vm")))
    nodes = [from_worker(("vm", "ok", "", output), taken, address)[0].node for address in ("a", "b")]
    assert nodes == ["vm", "vm@b"]


def launcher(folder: Path, text: str) -> list[str]:
    """Return a stub of srun or mpirun, to which nodes' frames are files beside it."""
    for node in ("n1", "n2"):
        lines = "".join(f"{line}\n" for line in frames(streams.envelope_of(node)))
        (folder / node).write_text(lines)
    path = folder / "launch"
    path.write_text(f"#!/bin/sh\ncd {folder}\n{text}\n")
    path.chmod(0o755)
    return [str(path)]


@posix
def test_an_address_of_ray_where_nothing_listens_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: object) -> None:
        raise AssertionError(options)

    stub = types.SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", stub)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, so that no other program listens there
        where = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(BadInput, match=f"no Ray cluster can be reached at {where}: .*refused"):
            next(ray.each(where, len, [()]))


def test_a_launcher_is_read_to_its_end_and_its_words_name_nodes(tmp_path: Path) -> None:
    command = launcher(
        tmp_path,
        "cat n1; echo noise; cat n2; echo 'srun: error: n3: task 2: Exited with exit code 9' >&2",
    )
    found: list[Envelope] = []
    run_launcher(command, Job((), 5), found.append, ())
    assert [(envelope.node, envelope.status) for envelope in found] == [
        ("n1", Status.OK), ("n2", Status.OK), ("n3", Status.ERROR),
    ]  # fmt: skip


@posix
def test_a_launcher_that_hangs_is_stopped_and_its_nodes_are_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlbackends.fleet.engines.GRACE_SECONDS", 0.2)
    found: list[Envelope] = []
    run_launcher(launcher(tmp_path, "cat n1; exec sleep 60"), Job((), 0.1), found.append, ("n1", "n2"))
    assert [(envelope.node, envelope.status) for envelope in found] == [
        ("n1", Status.OK), ("n2", Status.TIMEOUT),
    ]  # fmt: skip


@posix
def test_a_launcher_without_a_report_says_why(tmp_path: Path) -> None:
    with pytest.raises(MlBackendsError, match="no such partition"):
        run_launcher(launcher(tmp_path, "echo 'no such partition' >&2; exit 1"), Job((), 5), print, ())
    with pytest.raises(BadInput, match="cannot be started"):
        run_launcher([str(tmp_path / "none")], Job((), 5), print, ())


def test_slurm_is_not_given_an_allocation_by_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(BadInput, match="not inside a Slurm allocation"):
        slurm.expected(Job((), 5))


def test_each_engine_defines_how_it_runs() -> None:
    names = registry.names("mlbackends.fleet.engines")
    assert {"hosts", "slurm", "mpi", "ray", "dask"} <= {*names}
    assert all(callable(registry.load("mlbackends.fleet.engines", name).run) for name in names)


def test_a_task_of_dask_is_a_call_that_a_worker_without_mlbackends_can_receive() -> None:
    import pickle

    from mlbackends.fleet.engines import dask

    data = pickle.dumps(dask._Call(len, "four"))
    assert pickle.loads(data) == 4
    assert b"mlbackends" not in data


@posix
@pytest.mark.parametrize("end", ["SIGKILL", "SIGSTOP"], ids=["killed", "stopped"])
def test_a_scheduler_of_dask_that_is_lost_amid_reading_is_told(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    from mlbackends.fleet.engines import dask

    monkeypatch.setattr(dask, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(dask, "SILENT_SECONDS", 0.3)
    file = tmp_path / "scheduler.json"
    scheduler = (
        "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
        "--scheduler-file", str(file),
    )  # fmt: skip
    worker = (
        "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-nanny", "--nthreads", "1",
        "--no-dashboard", "--local-directory", str(tmp_path / "worker"),
    )  # fmt: skip
    started = [
        subprocess.Popen([sys.executable, "-m", *words], stderr=subprocess.DEVNULL)
        for words in (scheduler, worker)
    ]
    try:
        with distributed.Client(scheduler_file=file, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            where = client.scheduler.address
        parts = dask.each(where, time.sleep, [0, 600])
        assert next(parts) == (0, None)
        started[0].send_signal(getattr(signal, end))
        with pytest.raises(Incomplete, match=r"scheduler at tcp.* stopped, or cannot be reached"):
            next(parts)
    finally:
        for process in started:
            process.kill()
            process.wait()

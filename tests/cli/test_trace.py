"""`backends trace`: commands under tracing, saved traces, and two of them compared."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from running import PLAIN, backends

from mlbackends_cli.trace.options import measured

if os.name != "nt":
    import pty

if TYPE_CHECKING:
    from collections.abc import Sequence

TRACES = Path(__file__).resolve().parents[1] / "traces"
ONEDNN = str(TRACES / "torch-2.13-onednn-level2.log")
DISPATCH = str(TRACES / "torch-2.13-onednn-all-timestamp.log")
MKL = str(TRACES / "torch-2.13-mkl.log")
MIXED = str(TRACES / "tricky-locale-interleaved-crlf.log")

LINE = (
    "onednn_verbose,v1,primitive,exec,cpu,{what},brg:avx512_core,undef,src_f32::blocked:ab::f0"
    " wei_f32::blocked:ab::f0 dst_f32::blocked:ab::f0,,,64x64:64x64,{took}"
)


def log(path: Path, *calls: tuple[str, float], count: int = 10) -> str:
    """Write a trace in which each call came so often."""
    lines = [LINE.format(what=what, took=took) for what, took in calls for _ in range(count)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile a program that prints text and three trace lines as oneDNN does; it ends with 5."""
    folder = tmp_path_factory.mktemp("talker")
    source = folder / "talker.c"
    line = LINE.format(what="matmul", took="0.5").replace('"', "")
    source.write_text(f"""
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {{
    for (int i = 0; i < 3; i++) {{
        printf("text %d ", i);
        fflush(stdout);
        printf("%s\\n", "{line}");
        fflush(stdout);
    }}
    printf("%s\\n", count > 1 ? words[1] : "ends");
    fflush(stdout);
    if (count > 2) sleep(60);
    return 5;
}}
""")
    try:
        subprocess.run(["cc", "-o", folder / "talker", source], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler (cc) to make the program with")
    return str(folder / "talker")


# ---- capture ------------------------------------------------------------------------------


@pytest.mark.parametrize("separation", ["auto", "pipe"])
def test_the_command_keeps_its_output_and_its_exit_code(talker: str, tmp_path: Path, separation: str) -> None:
    trace = tmp_path / "run.log"
    options = ("-o", str(trace), "--separation", separation)
    done = backends("trace", "onednn", *options, "--", talker, "-o")
    assert (done.stdout, done.returncode) == ("text 0 text 1 text 2 -o\n", 5)
    assert trace.read_text().count("onednn_verbose,v1,primitive,exec") == 3
    assert "3 lines in " in done.stderr and str(trace) in done.stderr
    assert "matmul" in done.stderr and "1.5 ms" in done.stderr
    assert f"more: backends trace show --view findings --this-machine {trace}" in done.stderr


def test_without_a_summary_nothing_is_said(talker: str, tmp_path: Path) -> None:
    trace = str(tmp_path / "run.log")
    done = backends("trace", "all", "-o", trace, "--summary", "none", "--", talker)
    assert (done.stderr, done.returncode) == ("", 5)


def test_a_command_that_is_not_there_is_127(tmp_path: Path) -> None:
    done = backends("trace", "all", "-o", str(tmp_path / "run.log"), "--", "no-such-program")
    assert done.returncode == 127
    assert done.stderr == "backends: program 'no-such-program' not found on PATH\n"


def test_a_command_that_was_killed_without_a_line_keeps_none(tmp_path: Path) -> None:
    trace = tmp_path / "run.log"
    done = backends("trace", "onednn", "-o", str(trace), "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    assert "ended by SIGKILL\n" in done.stderr
    assert not trace.exists()


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self.said = b""
        self.process, self.end = pty.fork()
        if not self.process:
            os.chdir("/")
            try:
                os.execve(
                    sys.executable,
                    [sys.executable, "-m", "mlbackends", *arguments],
                    {**PLAIN, "TERM": "xterm", **environment},
                )
            finally:
                os._exit(99)
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))

    def until(self, text: bytes, seconds: float = 60) -> None:
        """Read until some text has come."""
        limit = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < limit, self.said
            assert self._read(), self.said

    def _read(self) -> bool:
        if not select.select([self.end], [], [], 0.1)[0]:
            return True
        try:
            piece = os.read(self.end, 65536)
        except OSError:
            return False
        self.said += piece
        return bool(piece)

    def ended(self) -> int:
        """Read to the end, and return the exit code."""
        while self._read():
            pass
        os.close(self.end)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def test_ctrl_c_ends_the_command_and_leaves_the_trace(talker: str, tmp_path: Path) -> None:
    trace = tmp_path / "run.log"
    terminal = Terminal(("trace", "onednn", "-o", str(trace), "--", talker, "ready", "sleep"), {})
    terminal.until(b"ready")
    os.write(terminal.end, b"\x03")
    assert terminal.ended() == 130
    assert b"ended by SIGINT" in terminal.said
    assert trace.read_text().count("\n") == 3


# ---- show ---------------------------------------------------------------------------------


def test_of_this_machine_the_roofline_has_its_speeds() -> None:
    done = backends("trace", "show", MKL, "--view", "roofline", "--this-machine", "--format", "json")
    assert json.loads(done.stdout)["roof"]["gflops"] == 100
    alone = backends("trace", "show", MKL, "--view", "roofline", "--format", "json")
    assert json.loads(alone.stdout)["roof"] is None


@pytest.mark.slow
def test_the_speeds_of_this_machine_can_be_measured() -> None:
    speeds = measured()
    assert speeds is not None
    assert speeds.gflops > 0
    assert speeds.gigabytes_per_second > 0


def test_groups_filters_and_limits() -> None:
    done = backends(
        "trace", "show", MKL, "--group-by", "operation,shape", "--where", "operation=SGEMM",
        "--top", "2", "--format", "json",
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert told["by"] == ["operation", "shape"]
    assert len(told["rows"]) == 2 < told["groups"]
    assert {row["values"][0] for row in told["rows"]} == {"SGEMM"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--where", "operation=matmull"), "'; operations here are: matmul, softmax\n"),
        (("--where", "operation=softmaxx", "--view", "records"),
         "no line fits --where 'operation=softmaxx'; operations here are: softmax, matmul\n"),
        (("--where", "isa=avx2 and operation=matmul"), "; isa here is: avx512_core\n"),
        (("--where", "shape~7x7"), "; shapes here are: 64x64:64x64\n"),
        (("--where", "duration_ns>1s"), "no call fits --where 'duration_ns>1s'\n"),
        (("--skip-first", "10"), "no call is left after --skip-first 10: no call comes more often\n"),
        (("--skip-first", "9", "--where", "operation=x"),
         "no call fits --where 'operation=x' after --skip-first 9; operations"),
    ],
)  # fmt: skip
def test_where_no_call_fits_what_there_is_is_told(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    trace = log(tmp_path / "a.log", ("matmul", 0.5), ("softmax", 1))
    done = backends("trace", "show", trace, *options)
    assert (done.stdout, done.returncode) == ("", 1)
    assert said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("view", ["summary", "findings", "dispatch", "roofline"])
def test_a_view_without_rows_has_its_columns_in_csv(view: str, tmp_path: Path) -> None:
    options = ("--view", view, "--format", "csv")
    trace = log(tmp_path / "a.log", ("matmul", 0.5))
    empty = backends("trace", "show", trace, "--where", "operation=x", *options).stdout
    assert empty.count("\n") == 1 and "," in empty
    full = backends("trace", "show", DISPATCH, *options).stdout
    assert full.startswith(empty)


def test_what_needs_every_line_and_what_does_not_agree() -> None:
    fast = backends("trace", "show", MKL, "--format", "json")
    slow = backends("trace", "show", MKL, "--format", "json", "--where", "line_number>=1")
    one, other = json.loads(fast.stdout), json.loads(slow.stdout)
    assert (one["count"], one["groups"]) == (other["count"], other["groups"])
    assert one["total_ns"] == pytest.approx(other["total_ns"])


def test_the_warm_up_is_left_out(tmp_path: Path) -> None:
    trace = log(tmp_path / "a.log", ("matmul", 0.5), ("softmax", 1))
    done = backends("trace", "show", trace, "--skip-first", "3", "--format", "json")
    assert json.loads(done.stdout)["count"] == 14


def test_standard_input_is_a_file() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlbackends", "trace", "show", "-", "--format", "json"],
        input=Path(ONEDNN).read_bytes(), capture_output=True, check=True, env=PLAIN,
    )  # fmt: skip
    assert json.loads(done.stdout)["count"] > 0


def test_calls_are_told_apart_by_the_file_and_the_rank_they_came_from(tmp_path: Path) -> None:
    first = log(tmp_path / "rank0.log", ("matmul", 1), count=3)
    second = Path(log(tmp_path / "rank1.log", ("matmul", 1), count=2))
    second.write_text("".join(f"1: {line}\n" for line in second.read_text().splitlines()))
    files = (first, str(second))
    grouped = backends("trace", "show", *files, "--group-by", "source", "--format", "json")
    rows = {row["values"][0]: row["count"] for row in json.loads(grouped.stdout)["rows"]}
    assert rows == {"rank0.log": 3, "rank1.log/1": 2}
    only = ("--where", "source=rank1.log/1", "--format", "jsonl", "--view", "records")
    records = backends("trace", "show", *files, *only).stdout.splitlines()
    assert [json.loads(line)["source"] for line in records] == ["rank1.log/1"] * 2
    assert [json.loads(line)["prefix"] for line in records] == ["1: "] * 2
    table = backends("trace", "show", *files, "--format", "csv").stdout
    assert {row["source"] for row in csv.DictReader(io.StringIO(table))} == set(rows)
    timeline = json.loads(backends("trace", "show", *files, "--format", "perfetto").stdout)
    calls = [event for event in timeline["traceEvents"] if event["ph"] == "X"]
    assert {call["args"]["source"] for call in calls} == set(rows)
    assert len({call["pid"] for call in calls}) == 2


def test_a_file_alone_is_grouped_by_its_ranks(tmp_path: Path) -> None:
    lines = Path(log(tmp_path / "run.log", ("matmul", 1), count=4)).read_text().splitlines()
    ranked = "".join(f"[1,{number % 2}]<stdout>:{line}\n" for number, line in enumerate(lines))
    Path(tmp_path / "run.log").write_text(ranked)
    done = backends(*("trace", "show", str(tmp_path / "run.log"), "--group-by", "source", "--format", "json"))
    rows = {row["values"][0]: row["count"] for row in json.loads(done.stdout)["rows"]}
    assert rows == {"1,0": 2, "1,1": 2}


def test_packed_files_and_several_add_up(tmp_path: Path) -> None:
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(Path(ONEDNN).read_bytes()))
    one = json.loads(backends("trace", "show", ONEDNN, "--format", "json").stdout)
    both = json.loads(
        backends("trace", "show", str(tmp_path / "a.log.gz"), ONEDNN, "--format", "json").stdout
    )
    assert both["count"] == 2 * one["count"]


def test_a_torn_file_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    packed = gzip.compress(Path(ONEDNN).read_bytes() * 5)
    (tmp_path / "torn.gz").write_bytes(packed[: len(packed) * 3 // 4])
    done = backends("trace", "show", str(tmp_path / "torn.gz"))
    assert done.returncode == 3
    assert "operation" in done.stdout
    assert "torn.gz" in done.stderr


def test_a_log_without_a_trace_says_so(tmp_path: Path) -> None:
    (tmp_path / "text.log").write_text("nothing but text\n")
    done = backends("trace", "show", str(tmp_path / "text.log"))
    assert (done.stdout, done.returncode) == ("", 1)
    assert "no line of MKL or oneDNN in" in done.stderr


def test_lines_that_cannot_be_read_are_counted_and_listed(tmp_path: Path) -> None:
    trace = tmp_path / "torn.log"
    trace.write_text(f"{LINE.format(what='matmul', took='1')}\nonednn_verbose,v1,primitive,ex")
    done = backends("trace", "show", str(trace))
    assert done.returncode == 0
    assert done.stderr == "backends: 1 line could not be read; --list-malformed shows it\n"
    listed = backends("trace", "show", str(trace), "--list-malformed")
    assert listed.stdout == f"{trace}:2: the line is cut off\n  onednn_verbose,v1,primitive,ex\n"


def test_records_are_the_lines_and_the_programs_text_is_none() -> None:
    done = backends("trace", "show", MIXED, "--view", "records")
    assert done.stdout.splitlines()
    assert all("verbose" in line.lower() for line in done.stdout.splitlines())
    text = backends("trace", "show", MIXED, "--view", "records", "--where", "kind=text")
    assert text.stdout
    assert "exec,cpu" not in text.stdout


def test_csv_is_records_or_a_view() -> None:
    records = list(csv.DictReader(io.StringIO(backends("trace", "show", ONEDNN, "--format", "csv").stdout)))
    assert records[0]["kind"] == "header"
    summary = list(
        csv.DictReader(
            io.StringIO(backends("trace", "show", ONEDNN, "--format", "csv", "--view", "summary").stdout)
        )
    )
    assert float(summary[0]["total_ns"]) > 0
    assert summary[0]["operation"]


@pytest.mark.parametrize("view", ["findings", "dispatch", "roofline"])
@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "markdown"])
def test_every_view_in_every_format(view: str, form: str) -> None:
    done = backends("trace", "show", DISPATCH, "--view", view, "--format", form)
    assert done.returncode == 0, done.stderr
    if form == "json":
        assert json.loads(done.stdout)["view"] == view
    elif form == "jsonl":
        assert {json.loads(line)["view"] for line in done.stdout.splitlines()} <= {view}
    elif form == "csv":
        rows = list(csv.reader(io.StringIO(done.stdout)))
        assert {len(row) for row in rows} == {len(rows[0])}


def test_files_for_other_programs(tmp_path: Path) -> None:
    for form, name in (("perfetto", "run.json"), ("parquet", "run.parquet"), ("html", "run.html")):
        output = tmp_path / name
        done = backends("trace", "show", DISPATCH, "--format", form, "--output", str(output))
        if form == "parquet" and done.returncode:
            assert "pyarrow" in done.stderr
            continue
        assert (done.stdout, done.returncode) == ("", 0), done.stderr
        assert output.stat().st_size > 1000
    assert json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert (tmp_path / "run.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--group-by", "oprtion"), "records have no field 'oprtion'"),
        (("--group-by", ""), "nothing to group by"),
        (("--format", "csv", "--view", "summary", "--view", "roofline"), "a CSV file holds one table"),
        (("--where", "operation"), ""),
        (("--where", "operation=="), "found the end"),
        (("--format", "perfetto", "--view", "summary"), "perfetto contains records"),
        (("--format", "html", "--group-by", "shape"), "the HTML page contains all views"),
        (("--view", "records", "--view", "summary"), "records cannot be combined with views"),
        (("--view", "findings", "--group-by", "shape"), "are for the summary"),
        (("--view", "records", "--format", "json"), "records are not written as json"),
        (("--follow", "--format", "html"), "--follow cannot print html"),
        (("--follow", "--list-malformed"), "cannot be combined with --follow"),
        (("--output", "/nowhere/x"), "/nowhere/x cannot be written"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_cannot_be_is_refused(options: tuple[str, ...], said: str) -> None:
    done = backends("trace", "show", ONEDNN, *options)
    assert done.returncode == (2 if said else 0)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_there_is_named() -> None:
    done = backends("trace", "show", "/no/such.log")
    assert done.returncode == 2
    assert done.stderr.startswith("backends: '/no/such.log' cannot be opened: ")


@pytest.mark.parametrize("form", ["pipe", "file"])
def test_records_are_cleaned_as_other_views_are(form: str, tmp_path: Path) -> None:
    line = LINE.format(what="matmul", took="1")
    trace = tmp_path / "a.log"
    trace.write_bytes(b"\x1b[1mtitle\x07 \xff\xe2\x80\xae\r\n::error::x\n" + line.encode() + b"\n")
    output = tmp_path / "out"
    to_file = ("--output", str(output)) if form == "file" else ()
    done = backends("trace", "show", str(trace), "--view", "records", "--where", "kind!=x", *to_file)
    assert (done.returncode, done.stderr) == (0, "")
    text = output.read_text(encoding="utf-8") if form == "file" else done.stdout
    assert text == f"title\ufffd \ufffd\ufffd\n·::error::x\n{line}\n"


# ---- follow -------------------------------------------------------------------------------


def following(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mlbackends", "trace", "show", *arguments, "--follow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=PLAIN,
    )  # fmt: skip


def test_records_of_a_growing_file_come_as_they_are_written(tmp_path: Path) -> None:
    trace = tmp_path / "growing.log"
    first, second = (LINE.format(what=what, took="1") for what in ("matmul", "softmax"))
    trace.write_text(f"{first}\n{second[:50]}")
    process = following(str(trace), "--view", "records")
    assert process.stdout
    assert process.stdout.readline() == f"{first}\n".encode()
    with trace.open("a") as file:
        file.write(f"{second[50:]}\n")
    assert process.stdout.readline() == f"{second}\n".encode()
    process.send_signal(signal.SIGTERM if os.name == "nt" else signal.SIGINT)  # no other reaches it
    process.communicate()
    assert process.returncode == (1 if os.name == "nt" else 130)


def test_the_keyboard_ends_following_with_what_there_is(tmp_path: Path) -> None:
    trace = log(tmp_path / "growing.log", ("matmul", 0.5))
    terminal = Terminal(("trace", "show", trace, "--follow"), {})
    terminal.until(b"10 calls")
    log(tmp_path / "growing.log", ("matmul", 0.5), count=12)
    terminal.until(b"12 calls")
    os.write(terminal.end, b"\x03")
    assert terminal.ended() == 130
    assert b"Traceback" not in terminal.said


@pytest.mark.parametrize("options", [(), ("--view", "records")])
def test_the_end_of_standard_input_ends_following(options: tuple[str, ...], tmp_path: Path) -> None:
    trace = log(tmp_path / "a.log", ("matmul", 0.5))
    with open(trace, "rb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "mlbackends", "trace", "show", "--follow", *options, "-"],
            stdin=file, capture_output=True, env=PLAIN, check=False, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert (b"10 calls" in done.stdout) == (not options)
    assert done.stdout.count(b"onednn_verbose") == (10 if options else 0)


# ---- diff ---------------------------------------------------------------------------------


def test_slower_calls_are_exit_1(tmp_path: Path) -> None:
    before = log(tmp_path / "a.log", ("matmul", 0.5), ("softmax", 1))
    after = log(tmp_path / "b.log", ("matmul", 0.6), ("softmax", 0.5), ("reorder", 1))
    done = backends("trace", "diff", before, after)
    assert done.returncode == 1
    assert "slower (1)" in done.stdout and "faster (1)" in done.stdout
    assert "new (1)" in done.stdout
    assert backends("trace", "diff", before, after, "--threshold", "30%").returncode == 0
    assert backends("trace", "diff", before, after, "--threshold", "1.3").returncode == 0


def test_the_same_trace_is_no_difference() -> None:
    done = backends("trace", "diff", ONEDNN, ONEDNN)
    assert done.returncode == 0
    assert "slower (" not in done.stdout
    assert done.stdout.endswith("0 slower, 0 faster, 0 new, 0 gone: pass\n")


def test_noise_does_not_fail_and_the_whole_may(tmp_path: Path) -> None:
    before = log(tmp_path / "a.log", ("matmul", 10), ("softmax", 0.01))
    after = log(tmp_path / "b.log", ("matmul", 10.5), ("softmax", 0.02))
    assert backends("trace", "diff", before, after).returncode == 0
    assert backends("trace", "diff", before, after, "--smallest-share", "0").returncode == 1
    assert backends("trace", "diff", before, after, "--whole-threshold", "3%").returncode == 1


def test_a_difference_for_programs(tmp_path: Path) -> None:
    before = log(tmp_path / "a.log", ("matmul", 0.5))
    after = log(tmp_path / "b.log", ("matmul", 0.75))
    told = json.loads(backends("trace", "diff", before, after, "--format", "json").stdout)
    assert (told["failed"], told["changes"][0]["ratio"]) == (True, 1.5)
    (row,) = csv.DictReader(io.StringIO(backends("trace", "diff", before, after, "--format", "csv").stdout))
    assert (row["verdict"], row["before_count"], row["ratio"]) == ("slower", "10", "1.5")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--threshold", "much"), "neither a ratio such as 1.1 nor a share such as 10%"),
        (("--threshold", "-5%"), "-5% is negative; give how much slower: 10% or 1.1"),
        (("--threshold", "0.5"), "a threshold of 0.5 is not valid"),
        (("--smallest-share", "200%"), "a share of 2.0 is not valid"),
        (("--measure", "mode"), "invalid value 'mode' for --measure; choose from"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_thresholds_that_mean_nothing_are_refused(options: tuple[str, ...], said: str) -> None:
    done = backends("trace", "diff", ONEDNN, ONEDNN, *options)
    assert done.returncode == 2
    assert said in done.stderr


def test_nothing_to_compare_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "text.log").write_text("text\n")
    done = backends("trace", "diff", ONEDNN, str(tmp_path / "text.log"))
    assert done.returncode == 3
    assert "no line of MKL or oneDNN" in done.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--where", "operation=xx"), "no call in the trace before and the trace after"),
        (("--skip-first", "99"), "no call in the trace before and the trace after"),
        (("--where", "line_number>10"), "no call in the trace after"),
        (("--group-by", "implementation,operation"), "no call is in both traces"),
    ],
)
def test_a_gate_that_compared_nothing_is_not_green(
    options: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    before = log(tmp_path / "a.log", ("matmul", 0.5), count=20)
    after = log(tmp_path / "b.log", ("softmax", 0.5), count=10)
    done = backends("trace", "diff", before, after, *options)
    assert done.returncode == 3
    assert done.stderr.startswith(f"backends: nothing was compared: {why}")
    assert done.stderr.count("\n") == 1
    assert done.stdout.endswith(": nothing was compared\n")


def test_what_did_not_change_is_one_line_and_the_verdict_the_last(tmp_path: Path) -> None:
    before = log(tmp_path / "a.log", ("matmul", 0.5), ("softmax", 1), ("tiny", 0.001))
    after = log(tmp_path / "b.log", ("matmul", 0.6), ("softmax", 1), ("tiny", 0.002))
    done = backends("trace", "diff", before, after)
    assert "1 same, 1 noise: --all shows them" in done.stdout
    assert "softmax" not in done.stdout
    assert done.stdout.splitlines()[-1] == "1 slower, 0 faster, 0 new, 0 gone: fail"
    whole = backends("trace", "diff", before, after, "--all", "--threshold", "30%").stdout
    assert "softmax" in whole and "same (2)" in whole
    assert whole.splitlines()[-1] == "0 slower, 0 faster, 0 new, 0 gone: pass"


# ---- the group ----------------------------------------------------------------------------


def test_a_command_without_its_tracer_is_told_how_to_run_it() -> None:
    done = backends("trace", "python3", "train.py")
    assert done.returncode == 2
    assert "backends trace all -- python3 ..." in done.stderr

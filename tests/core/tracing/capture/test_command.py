"""Commands that run with tracing on: real processes, each captured in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.tracing.capture import command as capture

if sys.platform == "win32":
    pytest.skip("captures are for POSIX", allow_module_level=True)

# Captures a command as its arguments say, and writes the record where nothing else is written.
CAPTURE = """
import json, sys
import msgspec
from mlbackends.tracing.capture import command as capture
from mlbackends.tracing.capture.process import NotStarted
options = json.loads(sys.argv[1])
record = options.pop("record")
try:
    captured = capture.run(sys.argv[2:], **options)
except NotStarted as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
with open(record, "wb") as file:
    file.write(msgspec.json.encode(captured))
sys.exit(captured.exit_code)
"""
WAYS = ["preload", "pipe"]


class Captures:
    """Captures commands, in a process whose streams a test can see."""

    def __init__(self, folder: Path, shim: str) -> None:
        self.folder = folder
        self.shim = shim
        self.trace = folder / "trace.log"
        self.record = folder / "record.json"

    def command(self, *command: str, **options: Any) -> list[str]:
        settings = {
            "tracers": ["onednn"],
            "output": str(self.trace),
            "shim": self.shim,
            "record": str(self.record),
            **options,
        }
        return [sys.executable, "-c", CAPTURE, json.dumps(settings), *command]

    def run(self, *command: str, stdin: bytes = b"", **options: Any) -> Any:
        return subprocess.run(
            self.command(*command, **options), input=stdin, capture_output=True, check=False
        )

    def lines(self, path: Path | None = None) -> list[str]:
        path = path or self.trace
        text = path.read_text().splitlines() if path.exists() else []  # none is kept without a line
        return [line.rpartition("] ")[2] for line in text]

    def told(self) -> Any:
        return json.loads(self.record.read_bytes())

    def warnings(self) -> str:
        return "\n".join(text for level, text in self.told()["notices"] if level == "WARNING")


@pytest.fixture
def captures(tmp_path: Path, shim: str) -> Captures:
    return Captures(tmp_path, shim)


def printed(child: int, count: int) -> list[str]:
    """Return the lines that the printer prints."""
    head = "onednn_verbose,v1,primitive,exec,cpu,matmul,brg,,a:f32,b,c,8:8"
    return [f"{head},{child}.{line}" for line in range(count)]


def wait_for(path: Path, lines: int) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("way", WAYS)
def test_trace_and_text_are_told_apart(captures: Captures, printer: str, way: str) -> None:
    done = captures.run(printer, "text", "3", "trace", "5", "part", "end", separation=way)
    assert done.stdout == b"text 0\r\ntext 1\r\ntext 2\r\nend"
    assert not done.stderr
    assert captures.lines() == printed(0, 5)
    told = captures.told()
    assert (told["lines"], told["lines_by_tracer"], told["lost"]) == (5, {"onednn": 5}, 0)
    assert (told["exit_code"], told["separation"], told["notices"]) == (0, way, [])


@pytest.mark.parametrize("way", WAYS)
def test_a_line_that_is_printed_in_pieces_is_in_the_trace(captures: Captures, printer: str, way: str) -> None:
    done = captures.run(printer, "text", "1", "pieces", "part", "end", separation=way)
    assert done.stdout == b"text 0\r\nend"
    assert captures.lines() == ["onednn_verbose,info,prim_template:timestamp,operation,exec_time"]


def test_the_shim_is_taken_where_it_fits(captures: Captures, printer: str) -> None:
    captures.run(printer, "trace", "1")
    assert captures.told()["separation"] == "preload"
    assert captures.trace.read_text().startswith("[pid ")


def test_without_a_shim_the_output_goes_through_a_pipe_and_that_is_told(
    captures: Captures, printer: str
) -> None:
    done = captures.run(printer, "part", "x", "trace", "1", "part", "y", shim="")
    assert done.stdout == b"xy"
    ((level, text),) = captures.told()["notices"]
    assert level == "INFO"
    assert "without a C compiler" in text


@pytest.mark.parametrize("way", WAYS)
def test_four_processes_lose_no_line(captures: Captures, printer: str, way: str) -> None:
    done = captures.run(printer, "fork", "fork", "trace", "5000", "text", "10", separation=way)
    # The children of the two forks print, and so does the first child's child.
    assert sorted(captures.lines()) == sorted(printed(0, 5000) + printed(1, 5000) * 3)
    assert done.stdout.count(b"text") == 40
    if way == "preload":
        assert captures.told()["processes"] == 4


def test_stdin_stderr_and_the_exit_code_are_the_commands(captures: Captures) -> None:
    code = "import sys; sys.stderr.write(sys.stdin.read().upper()); sys.exit(77)"
    done = captures.run(sys.executable, "-c", code, stdin=b"typed")
    assert (done.stdout, done.stderr, done.returncode) == (b"", b"TYPED", 77)


def test_descriptors_and_settings_of_ours_do_not_reach_the_command(captures: Captures) -> None:
    code = "import os; print(sorted(map(int, os.listdir('/dev/fd')))[:-1])"
    assert captures.run(sys.executable, "-c", code).stdout == b"[0, 1, 2]\n"


@pytest.mark.parametrize("way", WAYS)
def test_a_command_that_is_killed_leaves_its_lines(captures: Captures, printer: str, way: str) -> None:
    done = captures.run(printer, "trace", "3", "die", "9", separation=way)
    assert done.returncode == 137
    assert captures.lines() == printed(0, 3)
    assert "SIGKILL" in captures.warnings()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
@pytest.mark.parametrize("way", WAYS)
def test_a_signal_to_us_is_the_commands(
    captures: Captures, printer: str, way: str, number: signal.Signals
) -> None:
    command = captures.command(printer, "trace", "2", "wait", separation=way)
    with subprocess.Popen(command) as running:
        wait_for(captures.trace, 2)
        running.send_signal(number)
        try:
            assert running.wait(60) == 128 + number
        finally:
            running.kill()
    assert captures.lines() == printed(0, 2)


def test_a_command_may_take_a_signal_and_go_on(captures: Captures) -> None:
    code = (
        "import signal, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\n"
        "while not seen: time.sleep(0.01)\n"
        "print('went on')"
    )
    command = captures.command(sys.executable, "-c", code)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(signal.SIGTERM)
        assert running.communicate()[0] == b"went on\n"
        assert running.returncode == 0


@pytest.mark.parametrize("way", WAYS)
def test_when_we_are_killed_what_came_is_kept(captures: Captures, printer: str, way: str) -> None:
    command = captures.command(printer, "trace", "2", "wait", separation=way)
    with subprocess.Popen(command, start_new_session=True) as running:
        wait_for(captures.trace, 2)
        os.killpg(running.pid, signal.SIGKILL)
    assert captures.lines() == printed(0, 2)


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_that_goes_away_ends_the_command_as_ever(captures: Captures, way: str) -> None:
    command = captures.command("sh", "-c", "yes; exit 3", separation=way)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout
        assert running.stdout.readline() == b"y\n"
        running.stdout.close()
        assert running.wait(60) == 3  # yes was ended, and the shell went on


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("no-such-program-here", 127, "on PATH"),
        ("./no/such/program", 127, "not found"),
        ("", 127, "not found"),
        ("/", 126, "folder"),
        ("/dev/null", 126, "not executable"),
    ],
)
def test_a_command_that_cannot_start_leaves_an_older_trace_alone(
    captures: Captures, command: str, code: int, words: str
) -> None:
    captures.trace.write_text("older\n")
    done = captures.run(command)
    assert done.returncode == code
    assert words in done.stderr.decode()
    assert captures.trace.read_text() == "older\n"


def test_a_file_that_is_not_executable_is_126(captures: Captures) -> None:
    script = captures.folder / "script"
    script.write_text("echo hello")
    assert captures.run(str(script)).returncode == 126
    script.chmod(0o755)
    assert captures.run(str(script)).stdout == b"hello\n"  # without a first line it is sh's


def test_a_fifo_is_no_program_whatever_its_mode(captures: Captures) -> None:
    fifo = captures.folder / "fifo"
    os.mkfifo(fifo, 0o777)
    assert captures.run(str(fifo)).returncode == 126


def test_a_script_whose_interpreter_is_gone_is_126(captures: Captures) -> None:
    script = captures.folder / "script"
    script.write_text("#!/no/interpreter\n")
    script.chmod(0o755)
    done = captures.run(str(script))
    assert done.returncode == 126
    assert b"interpreter" in done.stderr


@pytest.mark.parametrize("output", ["no/such/folder/t.log", ".", "a\0b", "fifo", os.devnull], ids=repr)
def test_a_trace_that_cannot_be_written_is_refused_before_the_command_runs(
    tmp_path: Path, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    with pytest.raises(BadInput, match="cannot be written"):
        capture.run(["touch", "ran"], ("onednn",), output)
    assert not Path("ran").exists()


@pytest.mark.parametrize("way", ["terminal", "preload"])
def test_a_way_that_cannot_be_taken_is_refused(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: False)
    with pytest.raises(BadInput):
        capture.run(["true"], ("onednn",), str(tmp_path / "t"), separation=way, shim="")


@pytest.mark.slow
def test_a_slow_reader_of_ours_gets_all_the_text(captures: Captures, printer: str) -> None:
    command = captures.command(printer, "text", "20000", separation="pipe")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        time.sleep(3)  # longer than a quiet program in the background is waited for
        assert running.stdout
        assert len(running.stdout.read().splitlines()) == 20000


def test_ranks_that_cannot_be_told_apart_are_told(captures: Captures, printer: str) -> None:
    launch = f"RANK=0 '{printer}' trace 1; RANK=1 '{printer}' trace 1"
    captures.run("sh", "-c", launch, rank_variables=["RANK"], separation="pipe")
    assert captures.lines() == printed(0, 1) * 2
    assert "ranks share one trace" in captures.warnings()


def test_an_unknown_tracer_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="onedn"):
        capture.run(["true"], ("onedn",), str(tmp_path / "trace.log"))
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_counted_and_the_command_goes_on(captures: Captures, printer: str) -> None:
    command = f"ulimit -f 1; '{printer}' trace 50; echo done"
    done = captures.run("sh", "-c", command)
    assert done.stdout == b"done\n"
    told = captures.told()
    assert told["exit_code"] == 0
    assert told["lost"] > 0
    assert f"{told['lost']} lines could not be written to the trace: File too large" in (captures.warnings())
    kept = captures.lines()[: 50 - told["lost"]]
    assert kept == printed(0, len(kept))


@pytest.mark.parametrize("way", WAYS)
def test_a_full_disk_loses_lines_and_says_so(
    captures: Captures, printer: str, way: str, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root alone")
    try:
        captures.trace = disk / "trace.log"
        done = captures.run(printer, "trace", "1000", "text", "1", separation=way, output=str(captures.trace))
        assert done.returncode == 0
        assert done.stdout == b"text 0\r\n"
        assert "No space left on device" in captures.warnings()
        assert "MKL" not in captures.warnings()
        told = captures.told()
        assert told["lines"] + told["lost"] == 1000
        assert told["lines_by_tracer"] == {"onednn": told["lines"]}
        kept = captures.lines()[:-1]
        assert kept == printed(0, 1000)[: len(kept)]
        assert len(kept) > 50
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_command_without_the_library_is_told(captures: Captures) -> None:
    done = captures.run("true", tracers=["onednn", "mkl"])
    assert done.returncode == 0
    assert not captures.trace.exists()
    assert captures.told()["files"] == []
    assert "oneDNN and MKL printed no line" in captures.warnings()


def test_a_file_that_was_there_and_is_added_to_stays_though_it_is_empty(captures: Captures) -> None:
    captures.trace.touch()
    captures.run("true", append=True)
    assert captures.trace.read_bytes() == b""
    captures.run("true")
    assert not captures.trace.exists()


@pytest.mark.parametrize(
    ("libraries", "why"),
    [
        (["libscipy_openblas64_-1a2b.so"], "the command has OpenBLAS loaded"),
        (["libblis-mt.so"], "the command has BLIS loaded"),
        (["libopenblas.so.0", "libmkl_rt.so.2"], "the command does not use it"),
    ],
)
def test_who_computed_instead_of_mkl_is_reported(captures: Captures, libraries: list[str], why: str) -> None:
    paths = [str(captures.folder / name) for name in libraries]
    for path in paths:
        subprocess.run(["cc", "-shared", "-o", path, "-x", "c", os.devnull], check=True)
    code = "import ctypes, sys; list(map(ctypes.CDLL, sys.argv[1:]))"
    done = captures.run(sys.executable, "-c", code, *paths, tracers=["mkl"])
    assert done.returncode == 0
    assert f"MKL printed no line: {why}" in captures.warnings()
    assert not captures.trace.exists()


@pytest.mark.parametrize("way", WAYS)
def test_what_mkl_service_prints_is_no_output_of_the_program(
    captures: Captures, printer: str, way: str
) -> None:
    line = "mkl-service + Intel(R) MKL: THREADING LAYER: (null)"
    words = ["part", f"{line}\n", "part", "text\n"]
    done = captures.run(printer, *words, tracers=["mkl"], separation=way)
    assert done.stdout == b"text\n"
    assert captures.lines() == [line]


def test_lines_of_a_static_program_below_a_shell_are_printed_and_a_pipe_takes_them(
    captures: Captures, tmp_path: Path
) -> None:
    source, program = tmp_path / "static.c", tmp_path / "static"
    (line,) = printed(0, 1)
    source.write_text(f'#include <stdio.h>\nint main(void) {{ puts("text\\n{line}"); }}')
    made = subprocess.run(["cc", "-static", "-o", program, source], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no static C library to link with")
    done = captures.run("sh", "-c", f"{program}; true")
    assert done.stdout.decode() == f"text\n{line}\n"
    assert "library cannot reach: a static or setuid one" in captures.warnings()
    done = captures.run("sh", "-c", f"{program}; true", separation="pipe")
    assert (done.stdout, captures.lines()) == (b"text\n", [line])
    assert not captures.warnings()
    done = captures.run(str(program))
    assert (done.stdout, captures.lines()) == (b"text\n", [line])
    ((_, why),) = captures.told()["notices"]
    assert why == f"the output goes through a pipe: {program} is linked statically"


def test_a_program_that_lost_our_variables_is_told(captures: Captures, printer: str) -> None:
    done = captures.run("env", "-i", printer, "trace", "1", "part", "end")
    assert done.stdout.decode() == f"{printed(0, 1)[0]}\nend"
    assert "one without our variables (env -i, sudo)" in captures.warnings()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("tool", "is_seen"), [("/usr/bin/printf", False), ("/bin/echo", True)], ids=["printf", "echo"]
)
def test_what_other_tools_print_is_whole_in_output_or_trace(
    captures: Captures, tool: str, is_seen: bool, way: str
) -> None:
    """GNU printf puts letter by letter into C's buffer, where no shim sees it."""
    if not os.path.exists(tool):
        pytest.skip(f"{tool} is not here")
    (line,) = printed(0, 1)
    end = "\\n" if "printf" in tool else ""
    done = captures.run(tool, line + end, separation=way)
    assert done.stdout.decode() + "".join(f"{line}\n" for line in captures.lines()) == f"{line}\n"
    if way == "pipe" or (is_seen and b"GNU" in _version(tool)):
        assert not done.stdout


def _version(tool: str) -> bytes:
    return subprocess.run([tool, "--version"], capture_output=True, check=False).stdout


@pytest.mark.parametrize("tracer", ["onednn", "mkl"])
def test_an_installation_without_the_shim_needs_none(
    tracer: str, tmp_path: Path, printer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, and where no compiler was at hand."""
    monkeypatch.setattr(os, "isatty", lambda _: False)
    command, output = [printer, "trace", "1"], str(tmp_path / "trace.log")
    captured = capture.run(command, (tracer,), output, shim="")
    assert captured.separation == ("pipe" if tracer == "onednn" else "none")
    assert captured.lines == (1 if tracer == "onednn" else 0)


@pytest.mark.parametrize("way", [*WAYS, "none"])
@pytest.mark.parametrize("options", [{}, {"rank_variables": ["NO_RANK"]}], ids=["one", "ranks"])
def test_a_command_that_removes_the_trace_keeps_its_exit_code(
    captures: Captures, way: str, options: dict[str, Any]
) -> None:
    done = captures.run("sh", "-c", f"rm '{captures.trace}'; exit 3", separation=way, **options)
    assert (done.returncode, done.stderr) == (3, b"")
    assert (captures.told()["files"], captures.told()["lines"]) == ([], 0)
    assert f"{captures.trace} is gone: it was removed" in captures.warnings()


def test_an_older_trace_is_replaced_or_added_to(captures: Captures, printer: str) -> None:
    captures.trace.write_text("torn end")
    captures.run(printer, "trace", "1", append=True)
    assert captures.trace.read_text().startswith("torn end\n[pid ")
    assert captures.told()["lines"] == 1
    captures.run(printer, "trace", "2")
    assert captures.lines() == printed(0, 2)


def test_two_captures_into_one_file_do_not_wipe_each_other(captures: Captures, printer: str) -> None:
    command = captures.command(printer, "trace", "2", "wait", record="/dev/null")
    with subprocess.Popen(command) as first:
        wait_for(captures.trace, 2)
        captures.run(printer, "trace", "3")
        first.terminate()
    assert sorted(captures.lines()) == sorted(printed(0, 2) + printed(0, 3))
    assert "another capture was writing" in captures.warnings()


def test_each_rank_below_a_launcher_has_its_file(captures: Captures, printer: str) -> None:
    (captures.folder / "trace.rank7.log").write_text("older\n")
    launch = f"for rank in 0 1 2; do RANK=$rank '{printer}' trace $rank & done; wait"
    captures.run("sh", "-c", launch, rank_variables=["PMI_RANK", "RANK"])
    files = [captures.folder / f"trace.rank{rank}.log" for rank in (1, 2)]
    assert captures.told()["files"] == [str(file) for file in files]
    assert [captures.lines(file) for file in files] == [printed(0, 1), printed(0, 2)]
    assert captures.told()["lines"] == 3
    assert sorted(captures.folder.glob("trace*")) == files


def test_below_a_launcher_a_capture_is_its_ranks(
    captures: Captures, printer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PMI_RANK", "5")
    captures.run(printer, "trace", "2", rank_variables=["PMI_RANK"])
    assert captures.lines(captures.folder / "trace.rank5.log") == printed(0, 2)
    assert not captures.trace.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output": ""}, "the trace has no file name"),
        ({"output": "-"}, "standard output: the command itself uses that"),
        ({"components": "("}, "not a regular expression"),
        ({"components": "(?<=a)b"}, r"oneDNN has no \(\?<"),
        ({"environment": {**os.environ, "MLBACKENDS_TRACE_FILE": "/a.log"}}, "already runs under"),
    ],
    ids=["no name", "stdout", "torn expression", "expression of Python", "below a capture"],
)
def test_a_question_that_has_no_answer_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = {"command": ["touch", "touched"], "tracers": ("onednn",), "output": "t.log", **options}
    with pytest.raises(BadInput, match=said):
        capture.run(**asked)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", [*WAYS, "none"])
def test_a_capture_below_any_capture_is_told_so(captures: Captures, way: str) -> None:
    code = "import os; print(os.environ['MLBACKENDS_TRACE_FILE'])"
    done = captures.run(sys.executable, "-c", code, separation=way)
    assert done.stdout.decode().strip() == str(captures.trace)


def test_a_filter_that_may_have_left_all_out_is_told(captures: Captures) -> None:
    captures.run("true", components="nothing|(?:of)[[:alpha:]]")
    assert "no line: the filter of components may have left all out" in captures.warnings()
    assert "a static or setuid one (--separation pipe does)" in captures.warnings()
    captures.run("true", separation="pipe")
    assert "filter" not in captures.warnings() and "static" not in captures.warnings()


def test_nothing_of_ours_is_left_behind(captures: Captures, printer: str) -> None:
    scratch = captures.folder / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    command = captures.command(printer, "trace", "1", "die", "15")
    subprocess.run(command, env=environment, capture_output=True, check=False)
    assert not list(scratch.iterdir())


def test_a_capture_that_is_killed_leaves_the_command_running_and_no_file_but_the_trace(
    captures: Captures, printer: str
) -> None:
    scratch = captures.folder / "scratch"
    scratch.mkdir()
    command = captures.command(printer, "trace", "1", "part", "ready", "wait", "")
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as capture_process:
        assert capture_process.stdout
        assert capture_process.stdout.read(5) == b"ready"
        capture_process.kill()
        capture_process.wait()
        assert not list(scratch.iterdir())
        os.killpg(capture_process.pid, signal.SIGKILL)  # an error where the command had ended, too


def test_a_preloaded_library_of_the_users_stays(captures: Captures, printer: str) -> None:
    own = "/usr/lib/libthere-is-none.so"
    environment = {**os.environ, "LD_PRELOAD": own}
    code = "import os; print(os.environ['LD_PRELOAD'])"
    done = captures.run(sys.executable, "-c", code, environment=environment)
    assert done.stdout.decode().strip() == f"{own}:{captures.shim}"


def test_a_shim_whose_name_the_loader_cannot_read_is_reached_by_a_link(
    captures: Captures, printer: str
) -> None:
    place = captures.folder / "my $HOME: a folder"
    place.mkdir()
    (place / "shim.so").symlink_to(captures.shim)
    done = captures.run(printer, "trace", "2", shim=str(place / "shim.so"))
    assert not done.stderr
    assert captures.lines() == printed(0, 2)


@pytest.mark.slow
def test_program_left_in_the_background_is_not_waited_for_forever(captures: Captures) -> None:
    done = captures.run("sh", "-c", "sleep 1000 2>/dev/null & echo $!", separation="pipe")
    os.kill(int(done.stdout), signal.SIGKILL)
    assert "left in the background" in captures.warnings()


def test_mkl_alone_needs_no_way_of_its_own(captures: Captures) -> None:
    code = "import os; print(os.environ['MKL_VERBOSE_OUTPUT_FILE'])"
    done = captures.run(sys.executable, "-c", code, tracers=["mkl"], shim="")
    assert done.stdout.decode().strip() == str(captures.trace)
    assert captures.told()["separation"] == "none"


def test_a_program_that_shortens_the_counts_ends_nobody(captures: Captures, printer: str) -> None:
    program = "import os; os.truncate(os.environ['MLBACKENDS_TRACE_COUNTS'], 0)"
    script = f'{sys.executable} -c "{program}" 2>/dev/null; {printer} trace 3'

    done = captures.run("/bin/sh", "-c", script, separation="preload")

    assert done.returncode == 0, done.stderr
    assert captures.lines() == printed(0, 3)
    assert captures.told()["lines"] == 3


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give a link away")
def test_a_link_of_another_user_is_not_followed(captures: Captures, printer: str) -> None:
    target = captures.folder / "target"
    captures.trace.symlink_to(target)
    os.lchown(captures.trace, 12345, 12345)

    refused = captures.run(printer, "trace", "1")
    os.lchown(captures.trace, os.geteuid(), -1)
    followed = captures.run(printer, "trace", "1")

    assert b"a link of another user" in refused.stderr
    assert (followed.returncode, target.read_text().count("\n")) == (0, 1)

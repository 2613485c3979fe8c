"""`python -m mlbackends.xeon.run_cpu` as its user sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if sys.platform != "linux":
    pytest.skip("launches are Linux's", allow_module_level=True)

from mlbackends.launch.options import OPTIONS
from mlbackends.xeon.run_cpu import create_args, main, run

if os.name != "nt":
    import pty

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "mlbackends.xeon.run_cpu"]
PLAIN = ["--use-default-allocator", "--disable-iomp"]


def ran(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *PLAIN, *arguments], input=stdin, capture_output=True, text=True, check=False
    )


def script(folder: Path, code: str) -> str:
    path = folder / "script.py"
    path.write_text(code)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "program", "rank"),
    [
        (["s.py", "--rank", "3"], ["s.py", "--rank", "3"], -1),
        (["--rank", "1", "s.py", "--ran"], ["s.py", "--ran"], 1),
        (["--rank=1", "s.py", "a", "--", "x"], ["s.py", "a", "--", "x"], 1),
        (["-m", "pkg", "-m"], ["pkg", "-m"], -1),
        (["--latency-mode", "--", "--odd.py", "--rank"], ["--odd.py", "--rank"], -1),
        (["--rank", "-1", "s.py"], ["s.py"], -1),
    ],
)
def test_the_program_begins_at_the_first_word_that_is_not_ours(
    arguments: list[str], program: list[str], rank: int
) -> None:
    args = create_args().parse_args(arguments)
    assert [args.program, *args.program_args] == program
    assert args.rank == rank


def test_every_option_is_understood_in_every_spelling() -> None:
    values = {bool: [], int: ["7"], str: ["word"]}
    wanted = {bool: True, int: 7, str: "word"}
    for option in OPTIONS:
        for flag in option.flags:
            args = create_args().parse_args([flag, *values[option.kind], "--", "s.py"])
            assert getattr(args, option.name) == wanted[option.kind], flag


def test_main_raises_where_the_command_prints() -> None:
    args = create_args().parse_args(["--", "program.txt"])
    with pytest.raises(RuntimeError, match="not a Python script"):
        main(args)


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        (["program.txt"], "is not a Python script"),
        (["--ninstances", "0", "s.py"], "--ninstances is 0"),
        (["--ncores-per-instance", "99999", "s.py"], "instances of 99999 cores need"),
        (["--core-list", "x", "--ncores-per-instance", "1", "s.py"], "is not a list of CPUs"),
        (["--core-list", "16000", "--ncores-per-instance", "1", "s.py"], "CPU 16000 is off"),
        (["--node-id", "16000", "s.py"], "Invalid node id: 16000"),
        (["--no-python", "none-of-this-name"], "there is no program"),
    ],
)
def test_misuse_is_one_line_and_2(
    arguments: list[str], seen: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr()
    assert told.err.startswith("run_cpu: error: ") and seen in told.err
    assert told.err.count("\n") == 1
    assert not told.out


@pytest.mark.parametrize("arguments", [[], ["--rank"], ["--nosuch", "s.py"], ["--rank", "x" * 9999, "s.py"]])
def test_what_cannot_be_parsed_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(arguments)
    assert stopped.value.code == 2
    assert "run_cpu: error: " in capsys.readouterr().err


def test_the_exit_code_and_the_streams_are_the_programs(tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1:], sys.stdin.read()); raise SystemExit(3)"
    done = ran(script(tmp_path, code), "--rank", "9", "--", "--c", stdin="typed")
    assert done.returncode == 3
    assert done.stdout == "['--rank', '9', '--', '--c'] typed\n"


def test_each_command_is_told_on_standard_error(tmp_path: Path) -> None:
    done = ran("--disable-numactl", "--disable-taskset", "--no-python", "true")
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == "run_cpu: INFO - true"


def test_a_signal_to_the_launcher_reaches_the_program(tmp_path: Path) -> None:
    code = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(6))
print("ready", flush=True)
while True: time.sleep(1)
"""
    with subprocess.Popen(
        [*COMMAND, *PLAIN, script(tmp_path, code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 6
        finally:
            process.kill()


def test_ctrl_c_reaches_the_program_once(tmp_path: Path) -> None:
    code = """
import os, signal, sys, time
seen = []
signal.signal(signal.SIGINT, lambda *_: (seen.append(1), os.kill(os.getppid(), signal.SIGUSR1)))
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(10 + len(seen)))
print("ready", flush=True)
while True: time.sleep(1)
"""
    # The program answers Ctrl-C by a signal to the launcher, which comes back after any second SIGINT.
    terminal, end = pty.openpty()
    own_terminal = "import os, sys; os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"
    launcher = [*COMMAND, *PLAIN, script(tmp_path, code)]
    with subprocess.Popen(
        [sys.executable, "-c", own_terminal, os.ttyname(end), *launcher],
        stdin=end,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            os.write(terminal, b"\x03")
            assert process.wait(timeout=60) == 11
        finally:
            process.kill()
    os.close(terminal)
    os.close(end)


def test_starting_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from mlbackends.xeon.run_cpu import run\n"
        "run(['--no-python', 'true'])\n"
        "print(*{'torch', 'numpy', 'rich', 'click', 'logging', 'subprocess', 'psutil', 'tempfile'}"
        " & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

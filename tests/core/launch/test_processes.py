"""Programs side by side: real processes."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

if sys.platform != "linux":
    pytest.skip("launches are Linux's", allow_module_level=True)

from mlbackends.launch.processes import Child, executable, run

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = dict(os.environ)


def python(code: str, *arguments: str, cpus: tuple[int, ...] = ()) -> Child:
    return Child((sys.executable, "-c", code, *arguments), ENVIRONMENT, cpus)


def silent(level: str, sentence: str) -> None:
    """Tell nobody."""


def test_a_program_that_a_signal_ended_is_128_and_the_signal() -> None:
    assert run([python("import os; os.kill(os.getpid(), 9)")], silent) == 137


def test_the_first_failure_ends_the_others_and_is_the_exit_code(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    patient = """
import os, signal, sys, time
def end(*_):
    open(sys.argv[1] + ".ended", "w").close()
    os._exit(7)
signal.signal(signal.SIGTERM, end)
open(sys.argv[1], "w").close()
while True: time.sleep(1)
"""
    failing = """
import os, sys, time
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
raise SystemExit(3)
"""
    ready = str(tmp_path / "ready")
    children = [python(patient, ready), python(failing, ready)]
    assert run(children, lambda level, sentence: told.append((level, sentence))) == 3
    assert (tmp_path / "ready.ended").exists()
    assert [level for level, _ in told] == ["ERROR"]
    assert told[0][1].startswith("instance 1 (process ") and told[0][1].endswith("exit code 3")


def test_one_that_will_not_end_is_killed(tmp_path: Path) -> None:
    stubborn = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
while True: time.sleep(1)
"""
    failing = """
import os, sys, time
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
raise SystemExit(4)
"""
    ready = str(tmp_path / "ready")
    children = [python(stubborn, ready), python(failing, ready)]
    assert run(children, silent, grace_seconds=0.1) == 4


def test_the_launcher_binds_a_program_and_stays_where_it_was(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    cpu = max(before)
    code = "import os, sys; open(sys.argv[1], 'w').write(repr(os.sched_getaffinity(0)))"
    assert run([python(code, str(tmp_path / "seen"), cpus=(cpu,))], silent) == 0
    assert (tmp_path / "seen").read_text() == repr({cpu})
    assert os.sched_getaffinity(0) == before


def test_a_program_starts_with_no_signal_blocked_and_a_pipe_that_ends_it() -> None:
    code = """
import signal
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
"""
    assert run([python(code)], silent) == 0
    assert run([Child(("sh", "-c", "kill -PIPE $$"), ENVIRONMENT)], silent) == 128 + signal.SIGPIPE


def test_several_programs_have_no_stdin(tmp_path: Path) -> None:
    code = "import sys; assert sys.stdin.read() == ''"
    assert run([python(code), python(code)], silent) == 0


def test_each_instance_has_its_logs(tmp_path: Path) -> None:
    code = "import sys; print('out', sys.argv[1]); print('err', sys.argv[1], file=sys.stderr)"
    children = [python(code, "a"), python(code, "b")]
    assert run(children, silent, log_path=str(tmp_path), log_file_prefix="foo") == 0
    (attempt,) = tmp_path.glob("foo_*/attempt_0")
    logs = {str(path.relative_to(attempt)): path.read_text() for path in attempt.glob("*/*")}
    assert logs == {
        "0/stdout.log": "out a\n",
        "0/stderr.log": "err a\n",
        "1/stdout.log": "out b\n",
        "1/stderr.log": "err b\n",
    }


def test_each_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        assert run([Child(("true",), ENVIRONMENT)], silent, log_path=str(tmp_path / "logs")) == 0

    assert len(list((tmp_path / "logs").glob("run_*/attempt_0/0/stdout.log"))) == 2


def test_logs_below_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="logs cannot be written in"):
        run([Child(("true",), ENVIRONMENT)], silent, log_path=str(tmp_path / "file"))


def test_a_program_that_cannot_be_started_leaves_none_running(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    endless = python("import time\nwhile True: time.sleep(1)")
    before = {process.pid for process in psutil.Process().children()}
    with pytest.raises(RuntimeError, match="cannot be started: Exec format error"):
        run([endless, Child((str(broken),), ENVIRONMENT)], silent)
    assert {process.pid for process in psutil.Process().children()} <= before


def test_a_program_is_found_on_the_path_of_its_own_environment(tmp_path: Path) -> None:
    program = tmp_path / "our-program"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(RuntimeError, match="not an executable program"):
        executable(str(program), ENVIRONMENT)
    with pytest.raises(RuntimeError, match=r"no program 'our-program' on PATH"):
        executable("our-program", {"PATH": str(tmp_path)})
    program.chmod(0o755)
    assert executable("our-program", {"PATH": str(tmp_path)}) == str(program)


@pytest.mark.parametrize("name", ["", "/none/of/this", "a\0b", "/"])
def test_what_is_no_program_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match="program"):
        executable(name, ENVIRONMENT)

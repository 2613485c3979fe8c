"""Signals that end a command: what it has opened is cleared up, and the exit code says which one it was."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from running import PLAIN

from mlbackends_cli.exits import cleared_up

if TYPE_CHECKING:
    from pathlib import Path


HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # which Windows has not


@pytest.mark.parametrize("number", sorted({signal.SIGTERM, HANGUP}), ids=lambda each: each.name)
def test_the_signal_leaves_the_block(number: signal.Signals) -> None:
    def work() -> None:
        with cleared_up():
            signal.raise_signal(number)
            time.sleep(10)

    with pytest.raises(SystemExit) as caught:
        work()

    assert caught.value.code == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("number", sorted({signal.SIGTERM, HANGUP}), ids=lambda each: each.name)
def test_no_guard_around_a_probe_takes_the_signal_for_its_failure(
    number: signal.Signals, tmp_path: Path
) -> None:
    package = tmp_path / "stopped-1.0.dist-info"
    package.mkdir()
    (package / "entry_points.txt").write_text("[mlbackends.probes]\nstopped = stopped\n")
    (tmp_path / "stopped.py").write_text(
        f'"""Something: that is stopped."""\nimport signal\n'
        f"def find(host):\n    signal.raise_signal({int(number)})\n"
    )
    program = (
        "from mlbackends.survey import survey; from mlbackends_cli.exits import cleared_up\n"
        "with cleared_up():\n    survey(['stopped'])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**PLAIN, "PYTHONPATH": str(tmp_path)}, check=False)
    assert done.returncode == 128 + number


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(HANGUP, signal.SIG_IGN)
    try:
        with cleared_up():
            signal.raise_signal(HANGUP)
        assert signal.getsignal(HANGUP) is signal.SIG_IGN
    finally:
        signal.signal(HANGUP, before)


def test_a_cancelled_check_leaves_no_files_behind(tmp_path: Path) -> None:
    words = ("sdpa", "check", "--shape", "1,2,2048,64", "--rounds", "1000", "--backend", "math")
    process = subprocess.Popen(
        [sys.executable, "-m", "mlbackends", *words],
        env={**PLAIN, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.glob("backends-sdpa-*/*")) and process.poll() is None:
        time.sleep(0.05)
    process.terminate()
    out, complaints = process.communicate(timeout=60)

    assert process.returncode == 128 + signal.SIGTERM
    assert (out, complaints) == ("", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    sys.platform == "win32", reason="a process of Windows that is killed takes its files along"
)
def test_the_next_check_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    words = ("sdpa", "check", "--shape", "1,2,2048,64", "--rounds", "1000", "--backend", "math")
    command, environment = [sys.executable, "-m", "mlbackends"], {**PLAIN, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([*command, *words], env=environment, stdout=subprocess.DEVNULL) as killed:
        while not list(tmp_path.glob("backends-sdpa-*/*.stderr")) and killed.poll() is None:
            time.sleep(0.05)
        killed.kill()
    (left,) = tmp_path.glob("backends-sdpa-*")
    with subprocess.Popen([*command, *words], env=environment, stdout=subprocess.DEVNULL) as at_work:
        while len(list(tmp_path.glob("backends-sdpa-*/lock"))) != 1 or left.exists():
            assert at_work.poll() is None
            time.sleep(0.05)
        (in_use,) = tmp_path.glob("backends-sdpa-*")
        subprocess.run([*command, "sdpa", "check", "--shape", "1,1,8,8", "--backend", "math"],
                       env=environment, stdout=subprocess.DEVNULL, check=False)  # fmt: skip
        assert [*tmp_path.glob("backends-sdpa-*")] == [in_use]
        at_work.terminate()

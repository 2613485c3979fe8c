"""What instances print, in files and on the console."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if sys.platform != "linux":
    pytest.skip("launches are Linux's", allow_module_level=True)


from mlbackends.launch.processes import Log, new_run_folder

if TYPE_CHECKING:
    from pathlib import Path


AS_IN_A_CONTAINER = """
import os, sys, time
os.getpid, time.strftime = lambda: 1, lambda _: "now"
from mlbackends.launch.processes import Child, run
for _ in range(2):
    run([Child(("true",), dict(os.environ))], print, log_path=sys.argv[1])
"""


def test_each_run_has_a_folder_of_its_own_also_in_containers_that_share_one(tmp_path: Path) -> None:
    for _ in range(2):
        subprocess.run([sys.executable, "-c", AS_IN_A_CONTAINER, tmp_path / "logs"], check=True)

    assert len(list((tmp_path / "logs").glob("run_*/attempt_0/0/stdout.log"))) == 4


def test_logs_below_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="logs cannot be written in"):
        Log(str(tmp_path / "file"), 1, "[run0]:")
    with pytest.raises(ValueError, match="logs cannot be written below"):
        new_run_folder(str(tmp_path / "file"))


def test_lines_are_raw_in_the_file_and_tagged_on_the_console(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out, err = (Log(str(tmp_path), stream, "[foo3]:") for stream in (1, 2))
    os.write(out.writer, b"one\ntw")
    os.write(err.writer, b"careful\n")
    out.show()
    err.show()
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("[foo3]:one\n", "[foo3]:careful\n")
    os.write(out.writer, b"o")
    out.close()
    assert capfd.readouterr().out == "[foo3]:two\n"
    assert (tmp_path / "stdout.log").read_bytes() == b"one\ntwo"
    assert (tmp_path / "stderr.log").read_bytes() == b"careful\n"
    err.close()


def test_what_is_no_text_passes_through(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = Log(str(tmp_path), 1, "[run0]:")
    os.write(log.writer, b"\xff\x00\n")
    log.close()
    assert capfdbinary.readouterr().out == b"[run0]:\xff\x00\n"


def test_a_line_without_end_is_shown_when_it_gets_long(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log(str(tmp_path), 1, "[run0]:")
    with open(tmp_path / "stdout.log", "ab") as file:
        file.write(b"x" * (1 << 21))
    log.show()
    assert len(capfd.readouterr().out) > 1 << 20
    log.close()

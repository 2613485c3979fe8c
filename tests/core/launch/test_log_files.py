"""What instances print, in files and on the console."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlbackends.launch.processes import InstanceLogs, new_run_folder


def test_each_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    first, second = (new_run_folder(str(tmp_path / "logs")) for _ in range(2))
    assert first != second
    assert Path(first).name == Path(second).name == "attempt_0"


def test_logs_below_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="logs cannot be written below"):
        new_run_folder(str(tmp_path / "file"))


def test_lines_are_raw_in_the_file_and_tagged_on_the_console(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs = InstanceLogs(str(tmp_path), 3, "foo")
    os.write(logs.writers[1], b"one\ntw")
    os.write(logs.writers[2], b"careful\n")
    logs.show()
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("[foo3]:one\n", "[foo3]:careful\n")
    os.write(logs.writers[1], b"o")
    logs.close()
    assert capfd.readouterr().out == "[foo3]:two\n"
    assert (tmp_path / "3" / "stdout.log").read_bytes() == b"one\ntwo"
    assert (tmp_path / "3" / "stderr.log").read_bytes() == b"careful\n"


def test_what_is_no_text_passes_through(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    logs = InstanceLogs(str(tmp_path), 0, "run")
    os.write(logs.writers[1], b"\xff\x00\n")
    logs.close()
    assert capfdbinary.readouterr().out == b"[run0]:\xff\x00\n"


def test_a_line_without_end_is_shown_when_it_gets_long(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    logs = InstanceLogs(str(tmp_path), 0, "run")
    with open(tmp_path / "0" / "stdout.log", "ab") as file:
        file.write(b"x" * (1 << 21))
    logs.show()
    assert len(capfd.readouterr().out) > 1 << 20
    logs.close()

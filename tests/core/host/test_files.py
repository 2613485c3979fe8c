"""Everything is written or an error: full disks, gone readers, pipes that block and pipes that must not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.files import standard_output, whole_file

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1 << 20
WRITES = f"""
from mlbackends.host.files import standard_output
with standard_output() as file:
    file.write(b"first\\n")
    file.write(b"x" * {SIZE})
"""
UNBUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def _environment(unbuffered: str) -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": unbuffered}


def _on_a_full_disk(unbuffered: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    with open("/dev/full", "wb") as full:
        return subprocess.run(
            [sys.executable, "-m", "mlbackends", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env=_environment(unbuffered),
            text=True,
            check=False,
        )


@UNBUFFERED
def test_a_slow_reader_gets_every_byte(unbuffered: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITES],
        stdout=subprocess.PIPE,
        env=_environment(unbuffered),
        check=True,
    )
    assert len(done.stdout) == SIZE + 6


@UNBUFFERED
def test_a_pipe_that_does_not_block_gets_every_byte(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    process = subprocess.Popen([sys.executable, "-c", WRITES], stdout=writer, env=_environment(unbuffered))
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert len(file.read()) == SIZE + 6
    assert process.wait() == 0


@UNBUFFERED
@pytest.mark.parametrize("form", ["json", "table"])
def test_a_full_disk_ends_a_command_with_2_and_one_line(unbuffered: str, form: str) -> None:
    done = _on_a_full_disk(unbuffered, "info", "--depth", "found", "--format", form)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


@UNBUFFERED
def test_records_that_stream_to_a_full_disk_end_with_2(unbuffered: str) -> None:
    log = "tests/traces/torch-2.13-mkl.log"
    done = _on_a_full_disk(unbuffered, "trace", "show", log, "--format", "jsonl")
    assert done.returncode == 2
    assert "Exception" not in done.stderr


def test_what_was_printed_before_stands_before(capfd: pytest.CaptureFixture[str]) -> None:
    sys.stdout.write("first ")
    with standard_output() as file:
        file.write(b"second")
    sys.stdout.write(" third")
    sys.stdout.flush()
    assert capfd.readouterr().out == "first second third"


def test_a_stream_that_is_no_file_is_written_to(capsys: pytest.CaptureFixture[str]) -> None:
    with standard_output() as file:
        file.write(b"text")
    assert capsys.readouterr().out == "text"


def test_a_file_that_could_not_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(TypeError), whole_file(str(path)) as file:
        file.write(b"new" + None)  # type: ignore[operator]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_behind_a_link_is_replaced_with_its_rights(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    with whole_file(str(tmp_path / "link")) as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640

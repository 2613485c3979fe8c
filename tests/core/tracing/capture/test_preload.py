"""Into which programs the shim goes."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("the shim is Linux's", allow_module_level=True)

from mlbackends.tracing.capture.preload import preload_value, why_not

ENVIRONMENT = dict(os.environ)


def test_a_program_and_a_script_of_it_take_it(shim: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!{sys.executable} -s\n")
    through_env = tmp_path / "through_env"
    through_env.write_text("#!/usr/bin/env python3\n")
    for program in (sys.executable, str(script), str(through_env), "/bin/sh"):
        assert not why_not(program, shim, ENVIRONMENT)


def test_an_installation_without_it_says_why() -> None:
    assert "without a C compiler" in why_not(sys.executable, "", ENVIRONMENT)


def test_a_program_without_a_loader_does_not(shim: str, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    program = tmp_path / "main"
    command = ["cc", "-static", "-o", str(program), str(tmp_path / "main.c")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no static C library")
    assert "linked statically" in why_not(str(program), shim, ENVIRONMENT)


def test_a_program_for_another_processor_does_not(shim: str, tmp_path: Path) -> None:
    program = tmp_path / "program"
    data = bytearray(Path(os.path.realpath(sys.executable)).read_bytes())
    data[18:20] = struct.pack("<H", 22)  # e_machine: s390
    program.write_bytes(data)
    assert "the shim for" in why_not(str(program), shim, ENVIRONMENT)


def test_a_program_with_more_rights_does_not(shim: str, tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(os.path.realpath(sys.executable), program)
    program.chmod(0o4755)
    if not program.stat().st_mode & 0o4000:
        pytest.skip("the file system keeps no such right")
    assert "more rights" in why_not(str(program), shim, ENVIRONMENT)


@pytest.mark.parametrize("content", [b"", b"#!", b"#!\n", b"\x7fELF", b"\x7fELF" + b"\xff" * 99])
def test_what_cannot_be_told_counts_as_fitting(shim: str, tmp_path: Path, content: bytes) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    assert not why_not(str(program), shim, ENVIRONMENT)


@pytest.mark.parametrize(
    ("before", "value"),
    [
        ("", "/x/shim.so"),
        ("/a.so", "/a.so:/x/shim.so"),
        ("/a.so b.so", "/a.so b.so:/x/shim.so"),
        ("/x/shim.so:/a.so", "/x/shim.so:/a.so"),
    ],
)
def test_it_comes_behind_what_is_there(before: str, value: str) -> None:
    with ExitStack() as stack:
        assert preload_value("/x/shim.so", {"LD_PRELOAD": before}, stack) == value


def test_a_shim_that_cannot_be_opened_is_an_error() -> None:
    with ExitStack() as stack, pytest.raises(FileNotFoundError):
        preload_value("/a b/shim.so", {}, stack)

"""The cache of machine code: one file for all that decides it, damaged or not, for many processes."""

from __future__ import annotations

import errno
import os
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import mlbackends_kernels.cuda as kernels
from mlbackends_kernels.cuda import compiling
from mlbackends_kernels.cuda.errors import CudaUnavailable

if TYPE_CHECKING:
    from pathlib import Path

CHIP = (9, 0)
SOURCE = pathlib.Path(kernels.__path__[0]) / "copies.cu"

#: NVRTC in few words: a cubin is its options, and each compilation is a line of LOG.
STAND_IN = """
import os, sys
from types import ModuleType
nvrtc, programs = ModuleType("cuda.bindings.nvrtc"), {}
def function(name, call):
    setattr(nvrtc, name, call)
def compile(program, count, options):
    with open(os.environ["LOG"], "a") as log:
        log.write("compiled\\n")
    programs[program] = b"\\n".join(options) * 100
    return (0,)
function("nvrtcVersion", lambda: (0, *map(int, os.environ.get("NVRTC", "13.5").split("."))))
function("nvrtcGetSupportedArchs", lambda: (0, [75, 80, 86, 90]))
function("nvrtcCreateProgram", lambda source, *rest: (0, "program"))
function("nvrtcCompileProgram", compile)
function("nvrtcDestroyProgram", lambda program: (0,))
function("nvrtcGetCUBINSize", lambda program: (0, len(programs[program])))
function("nvrtcGetProgramLogSize", lambda program: (0, 1))
function("nvrtcGetProgramLog", lambda program, room: (0,))
def cubin(program, room):
    room[:] = programs[program]
    return (0,)
function("nvrtcGetCUBIN", cubin)
sys.modules["cuda"] = ModuleType("cuda")
sys.modules["cuda.bindings"] = bindings = ModuleType("cuda.bindings")
bindings.nvrtc = sys.modules["cuda.bindings.nvrtc"] = nvrtc
"""
PROGRAM = STAND_IN + (
    "from mlbackends_kernels.cuda import compiling, copies\n"
    "print(len(compiling.machine_code(copies._SOURCE, (9, 0), 'SIZE=4')))\n"
)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in of NVRTC in its place, and return the file that has a line for each compilation."""
    for name in ("cuda", "cuda.bindings", "cuda.bindings.nvrtc"):
        monkeypatch.setitem(sys.modules, name, None)
    file = tmp_path / "log"
    file.touch()
    for name, value in {"XDG_CACHE_HOME": tmp_path, "LOCALAPPDATA": tmp_path, "LOG": file}.items():
        monkeypatch.setenv(name, str(value))
    exec(compile(STAND_IN, "stand-in", "exec"), {})  # the same text runs in other processes
    for each in (compiling.nvrtc_version, compiling._target):
        each.cache_clear()
    return file


def machine_code() -> bytes:
    return compiling.machine_code(SOURCE, CHIP, "SIZE=4")


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "mlbackends" / "kernels").iterdir())


def compilations(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_the_second_call_compiles_nothing(log: Path, tmp_path: Path) -> None:
    assert machine_code() == machine_code()
    assert compilations(log) == 1
    (file,) = kept(tmp_path)
    assert file.suffix == ".cubin"


def test_each_thing_that_decides_the_code_has_a_file_of_its_own(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_code()
    compiling.machine_code(SOURCE, (8, 0), "SIZE=4")
    compiling.machine_code(SOURCE, CHIP, "SIZE=8")
    monkeypatch.setenv("NVRTC", "13.6")
    compiling.nvrtc_version.cache_clear()
    machine_code()
    compiling.machine_code(SOURCE.with_name("softmax.cu"), CHIP, "SIZE=4")
    assert compilations(log) == len(kept(tmp_path)) == 5


def test_a_file_that_another_takes_whole_decides_too(log: Path, tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "whole.cu").write_text('#include "part.cu"\n')
        (tmp_path / folder / "part.cu").write_text(f"// {folder}\n")
        for _ in range(2):
            compiling.machine_code(tmp_path / folder / "whole.cu", CHIP)
    assert compilations(log) == len(kept(tmp_path)) == 2


@pytest.mark.parametrize("damage", ["short", "long", "empty", "changed"])
def test_a_damaged_file_is_compiled_again(damage: str, log: Path, tmp_path: Path) -> None:
    whole = machine_code()
    (file,) = kept(tmp_path)
    good = file.read_bytes()
    changed = good[:50] + bytes([good[50] ^ 1]) + good[51:]
    bad = {"short": good[:-1], "long": good + b"x", "empty": b"", "changed": changed}[damage]
    file.write_bytes(bad)
    assert machine_code() == whole
    assert file.read_bytes() == good
    assert compilations(log) == 2


def test_without_a_place_to_write_each_process_compiles(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlbackends").write_text("a file where the folder should be")
    assert machine_code() == machine_code()
    assert compilations(log) == 2
    monkeypatch.setattr(compiling, "cache_file", lambda *_: None)
    machine_code()
    assert compilations(log) == 3


def test_a_full_disk_leaves_nothing_behind(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as during:
        during.setattr(pathlib.Path, "replace", full)
        assert machine_code()
    assert kept(tmp_path) == []
    machine_code()
    assert len(kept(tmp_path)) == 1 and compilations(log) == 2


def test_code_of_the_same_generation_serves_a_chip_that_is_not_known(log: Path) -> None:
    assert "--gpu-architecture=sm_86" in compiling.options_for((8, 9))
    for unknown in ((7, 2), (10, 0)):
        with pytest.raises(compiling.CompilationFailed, match=r"NVRTC 13\.5 does not know sm"):
            compiling.options_for(unknown)


def test_without_a_binding_that_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(CudaUnavailable, match="NVRTC cannot be called"):
        compiling.compiled(SOURCE, [])


def test_many_processes_at_once_all_get_the_code(log: Path, tmp_path: Path) -> None:
    environment: dict[str, Any] = {**os.environ, "LOG": str(log)}
    started = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=environment)
        for _ in range(8)
    ]
    found = {process.communicate()[0] for process in started}
    assert found == {f"{len(machine_code())}\n".encode()}
    assert len(kept(tmp_path)) == 1 <= compilations(log) <= 8

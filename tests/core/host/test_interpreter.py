"""Another interpreter is asked, within a limit; what is none says what it is."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import BadInput
from mlbackends.host import interpreter
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the programs are shell scripts")


def program(folder: Path, script: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def telling(version: str) -> str:
    return f"echo '{json.dumps({'version': version, 'path': [], 'prefix': '/'})}'"


def test_an_interpreter_describes_itself() -> None:
    told = interpreter.query(sys.executable)

    assert told["version"] == ".".join(map(str, sys.version_info[:3]))
    assert told["prefix"] == sys.prefix
    assert told.keys() == Host().python.keys()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 600", "did not answer within 0.5 s"),
        ("while :; do :; done", "did not answer within 0.5 s"),
    ],
)
def test_one_that_hangs_is_stopped_at_the_limit(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as raised:
        interpreter.query(program(tmp_path, script), timeout=0.5)
    assert "--timeout" in raised.value.hint


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (telling("2.7.18"), r"is Python 2\.7\.18; 3\.x is needed"),
        (telling("3.5.2"), r"is Python 3\.5\.2; 3\.6 or newer is needed"),
        ("kill -SEGV $$", "died of SIGSEGV"),
        ("kill -KILL $$", "died of SIGKILL"),
        ("true", "did not answer like a Python interpreter"),
        ("echo hello", "did not answer like a Python interpreter"),
        ("echo '{}'", "did not answer like a Python interpreter"),
        (f"{telling('3.12.1')}; exit 3", "did not answer like a Python interpreter"),
    ],
)
def test_what_is_no_python_that_we_can_read_says_what_it_is(tmp_path: Path, script: str, said: str) -> None:
    path = program(tmp_path, script)

    with pytest.raises(BadInput, match=said) as raised:
        interpreter.query(path)
    assert str(raised.value).startswith(path)


def test_an_old_python_that_can_be_read_is_taken(tmp_path: Path) -> None:
    assert interpreter.query(program(tmp_path, telling("3.6.0")))["version"] == "3.6.0"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/nonexistent/python", "does not exist"),
        ("/", "is not a program that can be run"),
        ("", "is not a program that can be run"),
        ("null\0byte", "is not a program that can be run"),
    ],
)
def test_what_cannot_be_run_is_bad_input(name: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        interpreter.query(name)


@pytest.mark.parametrize(
    ("stat", "said"),
    [
        ("(sh) S 1 1 1 0 -1 4194560 0", "there is no process 2"),
        ("garbage", "there is no process 2"),
        ("(x) S a b c d e f", "there is no process 2"),
    ],
)
def test_a_process_without_a_program_says_why(tmp_path: Path, stat: str, said: str) -> None:
    (tmp_path / "2").mkdir()
    (tmp_path / "2/stat").write_text(f"2 {stat}")

    with pytest.raises(BadInput, match=said):
        interpreter.of_process(2, proc=str(tmp_path))


def test_a_process_that_may_not_be_inspected_names_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "2").mkdir()
    monkeypatch.setattr(os, "readlink", refuse)

    with pytest.raises(BadInput, match="Permission denied") as raised:
        interpreter.of_process(2, proc=str(tmp_path))
    assert raised.value.hint.startswith("run this as root (sudo)")


def test_another_user_s_interpreter_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    (tmp_path / "7").mkdir()
    (tmp_path / "7/exe").symlink_to(program)

    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path / "7").st_uid + 1)
    assert interpreter.of_process(7, proc=str(tmp_path)) == {}
    assert not (tmp_path / "ran").exists()
    monkeypatch.undo()
    interpreter.of_process(7, proc=str(tmp_path))
    assert (tmp_path / "ran").exists()


def test_a_program_that_is_not_the_one_that_runs_is_never_started(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/exe").symlink_to(tmp_path / "python3.11 (deleted)")

    assert interpreter.of_process(7, proc=str(tmp_path)) == {}

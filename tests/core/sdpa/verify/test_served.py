"""A process that is asked: whatever becomes of it is told, and soon."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from mlbackends.model.checked import Ended
from mlbackends.sdpa.verify.served import Lost, Served, environment, program_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOP = "import sys, os, time, signal\nfor line in sys.stdin:\n    "


@pytest.fixture
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """Give a process that runs a body for each request."""
    command = [sys.executable, "-c", LOOP + request.param]
    found = Served(command, os.environ, str(tmp_path / "complaints"))
    yield found
    found.stop()


def lost(served: Served, timeout: float = 30.0) -> Lost:
    with pytest.raises(Lost) as caught:
        served.ask({"do": "it"}, timeout)
    return caught.value


@pytest.mark.parametrize("served", ["print(line.strip(), flush=True)"], indirect=True)
def test_an_answer_is_what_it_prints(served: Served) -> None:
    assert served.ask({"do": "it", "number": 1.5}, 30) == {"do": "it", "number": 1.5}
    assert served.ask({"do": "again"}, 30) == {"do": "again"}
    assert served.alive


@pytest.mark.parametrize("served", ["os.kill(os.getpid(), signal.SIGKILL)"], indirect=True)
def test_a_signal_is_named(served: Served) -> None:
    why = lost(served)

    assert (why.ended, why.reason.code) == (Ended.CRASHED, "crashed")
    assert "SIGKILL" in str(why)
    assert not served.alive
    assert lost(served).ended is Ended.CRASHED


@pytest.mark.parametrize("served", ["sys.exit('no   more')"], indirect=True)
def test_an_end_without_an_answer_has_its_last_words(served: Served) -> None:
    why = lost(served)

    assert (why.ended, why.reason.code) == (Ended.CRASHED, "exited")
    assert str(why).endswith("exit code 1 and no answer: no more")


@pytest.mark.parametrize("served", ["time.sleep(600)"], indirect=True)
def test_one_that_hangs_is_killed(served: Served) -> None:
    start = time.monotonic()
    why = lost(served, 0.5)

    assert why.ended is Ended.TIMED_OUT
    assert time.monotonic() - start < 30
    assert not served.alive


@pytest.mark.parametrize("served", ["print('hello', flush=True)"], indirect=True)
def test_what_is_no_answer_ends_it(served: Served) -> None:
    assert lost(served).ended is Ended.CRASHED
    assert not served.alive


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    missing = Served([str(tmp_path / "python")], {}, str(tmp_path / "complaints"))

    assert lost(missing).reason.code == "not-asked"
    missing.stop()


def test_a_program_of_another_interpreter_sees_no_module_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('mine')")
    program = tmp_path / "program.py"
    program.write_text("import json, sys\nprint(json.dumps(sys.argv[1:]), flush=True)\n")
    monkeypatch.chdir(tmp_path)
    command = program_command(sys.executable, str(program), ("a b", "'"))
    served = Served(command, os.environ, str(tmp_path / "complaints"))

    with pytest.raises(Lost) as caught:  # a list is no answer, but it got so far
        served.ask({}, 30)
    assert "mine" not in str(caught.value)
    served.stop()


def test_a_lower_processor_is_said_in_the_environment() -> None:
    assert environment("avx2")["ATEN_CPU_CAPABILITY"] == "avx2"
    assert environment().get("ATEN_CPU_CAPABILITY") == os.environ.get("ATEN_CPU_CAPABILITY")


@pytest.mark.parametrize("served", ['print(\'{"cannot": "too wide"}\', flush=True)'], indirect=True)
def test_a_refusal_is_told_as_one_and_ends_nothing(served: Served) -> None:
    why = lost(served)

    assert (why.ended, why.reason.code) == (Ended.CANNOT, "library-refuses")
    assert str(why) == "too wide"
    assert served.alive

"""A long-lived process: whatever happens to it becomes an answer, and soon."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from mlbackends.isolation.service import Lost, Service
from mlbackends.model.checked import Ended

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOP = "import sys, os, time, signal\nfor line in sys.stdin:\n    "


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    """Give a process that runs a body for each request."""
    command = [sys.executable, "-c", LOOP + request.param]
    found = Service(command, os.environ, str(tmp_path / "errors"))
    yield found
    found.stop()


def lost(service: Service, timeout: float = 30.0) -> Lost:
    with pytest.raises(Lost) as caught:
        service.send({"do": "it"}, timeout)
    return caught.value


@pytest.mark.parametrize("service", ["print(line.strip(), flush=True)"], indirect=True)
def test_an_answer_is_what_it_prints(service: Service) -> None:
    assert service.send({"do": "it", "number": 1.5}, 30) == {"do": "it", "number": 1.5}
    assert service.send({"do": "again"}, 30) == {"do": "again"}
    assert service.alive


@pytest.mark.parametrize("service", ["os.kill(os.getpid(), signal.SIGKILL)"], indirect=True)
def test_a_signal_is_named(service: Service) -> None:
    why = lost(service)

    assert (why.ended, why.reason.code) == (Ended.CRASHED, "crashed")
    assert "SIGKILL" in str(why)
    assert not service.alive
    assert lost(service).ended is Ended.CRASHED


@pytest.mark.parametrize("service", ["sys.exit('no   more')"], indirect=True)
def test_an_end_without_an_answer_has_its_last_words(service: Service) -> None:
    why = lost(service)

    assert (why.ended, why.reason.code) == (Ended.CRASHED, "exited")
    assert str(why).endswith("exit code 1 and no answer: no more")


@pytest.mark.parametrize("service", ["time.sleep(600)"], indirect=True)
def test_one_that_hangs_is_killed(service: Service) -> None:
    start = time.monotonic()
    why = lost(service, 0.5)

    assert why.ended is Ended.TIMED_OUT
    assert time.monotonic() - start < 30
    assert not service.alive


@pytest.mark.parametrize("service", ["print('hello', flush=True)"], indirect=True)
def test_what_is_no_answer_ends_it(service: Service) -> None:
    assert lost(service).ended is Ended.CRASHED
    assert not service.alive


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    missing = Service([str(tmp_path / "python")], {}, str(tmp_path / "errors"))

    assert lost(missing).reason.code == "not-asked"
    missing.stop()


@pytest.mark.parametrize("service", ['print(\'{"cannot": "too wide"}\', flush=True)'], indirect=True)
def test_a_refusal_is_told_as_one_and_ends_nothing(service: Service) -> None:
    why = lost(service)

    assert (why.ended, why.reason.code) == (Ended.CANNOT, "library-refuses")
    assert str(why) == "too wide"
    assert service.alive


@pytest.mark.parametrize(
    "service", ['print(\'{"cannot": "no x", "hint": "install x"}\', flush=True)'], indirect=True
)
def test_a_refusal_that_can_be_remedied_names_the_remedy(service: Service) -> None:
    reason = lost(service).reason
    assert (reason.code, reason.message, reason.hint) == ("missing-part", "no x", "install x")

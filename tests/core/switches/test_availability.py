"""Answers come from the probes, in a child process, each once."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base.errors import UnknownName
from mlbackends.base.reasons import Reason
from mlbackends.model.records import Library, Presence, ProbeReport
from mlbackends.switches import availability

if TYPE_CHECKING:
    from tests.conftest import FakeLibrary

UNTRIED = Reason("no-use-check", "it opens and answers; no check here computes with it")
BROKEN = Reason("wrong-result", "2 and 2 gave 5")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the probes report what a test says."""

    def report(presence: Presence | None, *reasons: Reason, version: str = "", **more: Any) -> None:
        made = ProbeReport(presence=presence, version=version, reasons=reasons, **more)
        for name in ("found_report", "used_report"):
            monkeypatch.setattr(availability, name, lambda _: made)
        for name in ("is_available", "opens", "version"):
            monkeypatch.setattr(availability, name, getattr(availability, name).__wrapped__)

    return report


@pytest.mark.parametrize(
    ("presence", "reasons", "found", "opens", "available"),
    [
        (Presence.ABSENT, (), False, False, False),
        (Presence.FOUND, (), True, False, False),
        (Presence.LOADABLE, (), True, True, False),
        (Presence.LOADABLE, (BROKEN,), True, True, False),
        (Presence.LOADABLE, (UNTRIED,), True, True, True),
        (Presence.USABLE, (), True, True, True),
        (None, (), False, False, False),  # the probe could not tell: no yes is claimed
    ],
)
def test_a_yes_is_earned(
    told: Any,
    presence: Presence | None,
    reasons: tuple[Reason, ...],
    found: bool,
    opens: bool,
    available: bool,
) -> None:
    told(presence, *reasons, version="9.10.2")

    assert availability.is_found("cudnn") is found
    assert availability.opens("cudnn") is opens
    assert availability.is_available("cudnn") is available
    assert availability.version("cudnn") == ("9.10.2" if opens else "")


def test_a_library_that_no_check_computes_with_is_available(told: Any) -> None:
    library = Library("xnnpack", "/lib/libXNNPACK.so", presence=Presence.LOADABLE, reasons=(UNTRIED,))
    told(Presence.LOADABLE, libraries=(library,))

    assert availability.is_available("xnnpack") is True


def test_a_name_of_no_probe_is_refused() -> None:
    with pytest.raises(UnknownName, match="nosuch"):
        availability.is_found("nosuch")


@pytest.mark.parametrize(
    ("name", "here"),
    [("json", True), ("nosuch_package", False), ("mlbackends", True), ("sys", True)],
)
def test_a_package_is_looked_for_without_importing_it(name: str, here: bool) -> None:
    assert availability.is_importable.__wrapped__(name) is here


def test_a_package_that_is_shut_out_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opt_einsum", None)

    assert availability.is_importable.__wrapped__("opt_einsum") is False


CUDNN = "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return %s; }"


@pytest.mark.parametrize(
    ("body", "said"),
    [("91002", "True 91002"), ("90800", "True 90800"), ("*(volatile size_t *)0", "False None")],
    ids=["9.10.2", "9.8.0", "crashes"],
)
def test_cudnn_says_its_version_itself(fake_library: FakeLibrary, body: str, said: str) -> None:
    files = [
        fake_library("cudnn", f"{name}.so.9", source=CUDNN % body) for name in ("libcudnn", "libcudnn_graph")
    ]
    path = ":".join(str(file.parent) for file in files)
    program = "from mlbackends import cudnn; print(cudnn.is_available(), cudnn.version())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_LIBRARY_PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"{said}\n"

"""Metal, as other systems see it and as a Mac would tell it."""

from __future__ import annotations

import platform
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends import mps
from mlbackends.model.records import Device, Presence, ProbeReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CACHED: tuple[Any, ...] = (
    mps.is_available, mps.is_macos_or_newer, mps.is_macos13_or_newer, mps.get_name, mps.get_core_count,
)  # fmt: skip


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    for function in CACHED:
        function.cache_clear()
    yield
    for function in CACHED:
        function.cache_clear()


def test_no_kernels_of_ours_are_for_metal() -> None:
    assert mps.is_built() is False


@pytest.mark.parametrize(
    ("version", "asked", "newer"),
    [
        ("14.5", (13, 0), True),
        ("13.2.1", (13, 3), False),
        ("13.3", (13, 3), True),
        ("26.0", (14, 4), True),
        ("12", (12, 0), True),
        ("", (1, 0), False),
    ],
)
def test_a_mac_is_as_new_as_it_says(
    version: str, asked: tuple[int, int], newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "mac_ver", lambda: (version, ("", "", ""), "arm64"))

    assert mps.is_macos_or_newer(*asked) is newer
    assert mps.is_macos13_or_newer() is (version not in ("12", ""))


def test_a_device_tells_its_name_and_cores(reported: Callable[..., None]) -> None:
    device = Device("mps", 0, name="Apple M3 Max", facts={"cores": 40})
    report = ProbeReport(presence=Presence.USABLE, devices=(device,))
    reported(mps=report)

    assert (mps.get_name(), mps.get_core_count()) == ("Apple M3 Max", 40)


def test_a_device_that_does_not_count_its_cores_is_a_runtime_error(
    reported: Callable[..., None],
) -> None:
    report = ProbeReport(presence=Presence.USABLE, devices=(Device("mps", 0, name="GPU"),))
    reported(mps=report)

    with pytest.raises(RuntimeError, match="number of its cores"):
        mps.get_core_count()

"""`mlbackends.bench`: the speeds of this machine, what cannot be measured, and what disturbs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import BadInput
from mlbackends.base.reasons import shared_codes
from mlbackends.bench import FIGURES, bench, counters, disturbances, undisturbed
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from pathlib import Path

QUIET = (5.0, 100.0, 3, 7)


def test_every_speed_is_measured_and_the_folder_is_left_empty(tmp_path: Path) -> None:
    found = bench(1, 60.0, str(tmp_path))
    figures = {figure.name: figure for figure in found.figures}
    assert [*figures] == [*FIGURES]
    assert all(figure.value and figure.repetitions and figure.by for figure in figures.values())
    assert figures["memory"].unit == figures["disk-read"].unit == "GB/s"
    assert "flash_cpu" in figures["attention"].by or "math" in figures["attention"].by
    assert found.rounds == 1
    assert [*tmp_path.iterdir()] == []


def test_no_round_begins_after_the_limit(tmp_path: Path) -> None:
    found = bench(100_000, 3.0, str(tmp_path))
    assert found.rounds < 100
    for figure in found.figures:
        assert figure.value or (figure.reason and figure.reason.code == "timed-out")


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a folder"):
        bench(1, 9.0, str(tmp_path / "none"))


def test_one_disturbed_half_does_not_count() -> None:
    assert undisturbed([100.0, 60.0, 99.0, 50.0, 70.0]) == 99.0
    assert undisturbed([3.0]) == 3.0


def test_a_quiet_machine_is_not_disturbed() -> None:
    assert disturbances(QUIET, QUIET, busy=0.02, waited=0.01) == ()


@pytest.mark.parametrize(
    ("after", "busy", "waited", "code"),
    [
        (QUIET, 0.5, 0.0, "busy"),
        (QUIET, 0.0, 0.4, "busy"),
        ((8.0, 120.0, 3, 7), 0.0, 0.0, "cpu-stolen"),
        ((5.0, 100.0, 4, 7), 0.0, 0.0, "throttled"),
        ((5.0, 100.0, 3, 9), 0.0, 0.0, "clock-throttled"),
    ],
)
def test_what_disturbs_is_reported(after: tuple[float, ...], busy: float, waited: float, code: str) -> None:
    (reason,) = disturbances(QUIET, after, busy, waited)
    assert reason.code == code
    assert code in shared_codes() or code == "throttled"


def test_lowered_clocks_are_counted_over_all_cpus(tmp_path: Path) -> None:
    for cpu, count in (("cpu0", "4\n"), ("cpu1", "5\n"), ("cpu2", "?\n")):
        file = tmp_path / "sys/devices/system/cpu" / cpu / "thermal_throttle/core_throttle_count"
        file.parent.mkdir(parents=True)
        file.write_text(count)
    assert counters(Host(str(tmp_path)))[3] == 9

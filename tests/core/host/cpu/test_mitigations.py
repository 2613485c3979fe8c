"""Which mitigations cost speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.host.cpu.speed import costly, gather_warning, mitigations
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("spectre_v2", "Mitigation: Retpolines; STIBP: disabled; RSB filling"),
        ("retbleed", "Mitigation: untrained return thunk; SMT vulnerable"),
        ("spec_rstack_overflow", "Mitigation: Safe RET"),
        ("meltdown", "Mitigation: PTI"),
        ("mds", "Mitigation: Clear CPU buffers; SMT vulnerable"),
        ("gather_data_sampling", "Mitigation: Microcode"),
        ("spec_store_bypass", "Mitigation: Speculative Store Bypass disabled"),
    ],
)
def test_work_at_run_time_costs_speed(name: str, state: str) -> None:
    assert costly({name: state}) == [name]


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("spectre_v2", "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional"),
        ("spec_store_bypass", "Mitigation: Speculative Store Bypass disabled via prctl"),
        ("spectre_v1", "Mitigation: usercopy/swapgs barriers and __user pointer sanitization"),
        ("retbleed", "Mitigation: Enhanced IBRS"),
        ("gather_data_sampling", "Vulnerable: No microcode"),
        ("unheard_of", "Mitigation: PTI"),
    ],
)
def test_what_is_free_or_off_does_not(name: str, state: str) -> None:
    assert costly({name: state}) == []


def test_flaws_that_the_cpu_does_not_have_are_listed_apart(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/cpu/vulnerabilities"
    folder.mkdir(parents=True)
    (folder / "l1tf").write_text("Not affected\n")
    (folder / "meltdown").write_text("Mitigation: PTI\n")
    (folder / "mds").write_bytes(b"\0\xff")
    (folder / "srbds").write_text("")
    assert mitigations(Host(str(tmp_path))) == ({"meltdown": "Mitigation: PTI"}, ["l1tf"])


def test_a_cpu_without_flaws_is_not_one_of_which_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    assert mitigations(Host(str(tmp_path))) is None
    folder = tmp_path / "sys/devices/system/cpu/vulnerabilities"
    folder.mkdir(parents=True)
    (folder / "l1tf").write_text("Not affected\n")
    assert mitigations(Host(str(tmp_path))) == ({}, ["l1tf"])


def test_only_slow_gathers_are_a_warning() -> None:
    assert gather_warning({"meltdown": "Mitigation: PTI"}) is None
    wrong = gather_warning({"gather_data_sampling": "Mitigation: Microcode"})
    assert wrong is not None
    assert wrong.code == "mitigation-costs-speed"

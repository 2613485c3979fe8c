"""The disks probe: against the system's own answer, and on machines that were recorded."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends_probes import disks

if TYPE_CHECKING:
    from tests.conftest import Machine

GIB = 1 << 30
MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:31 / /home rw - nfs4 server:/home rw
31 22 8:2 / /scratch rw - xfs /dev/sdb1 rw
"""


def test_sizes_are_those_that_the_system_reports() -> None:
    facts: Any = disks.find(Host()).facts
    assert set(facts) <= set(facts_of("disks"))
    assert facts["file_systems"]
    for row in facts["file_systems"]:
        assert row["total_bytes"] == shutil.disk_usage(row["path"]).total
    assert [row["path"] for row in facts["free"]] == [row["path"] for row in facts["file_systems"]]


def test_each_file_system_is_listed_once_with_what_it_is_for(machine: Machine) -> None:
    host = machine(
        {"proc/self/mountinfo": MOUNTS, "home/ann/.cache/x": "", "scratch/hf/x": "", "tmp/x": ""},
        disks={
            "/": [100 * GIB, 10 * GIB],
            "/home": [50 * GIB, GIB],
            "/scratch": [900 * GIB, 800 * GIB],
        },
        HOME="/home/ann",
        HF_HOME="/scratch/hf/models",
    )
    facts: Any = disks.find(host).facts
    assert [(row["path"], row["used_for"]) for row in facts["file_systems"]] == [
        ("/", "root, temporary files"),
        ("/home", "home, torch, pip"),
        ("/scratch", "Hugging Face"),
    ]
    assert {row["path"]: row["free_bytes"] // GIB for row in facts["free"]} == {
        "/": 10,
        "/home": 1,
        "/scratch": 800,
    }


@pytest.mark.parametrize("size", [[0, 0], [1, 2]])
def test_sizes_that_cannot_be_are_left_out(machine: Machine, size: list[int]) -> None:
    assert not disks.find(machine({}, disks={"/": size})).facts


def test_a_machine_without_recorded_disks_has_none(machine: Machine) -> None:
    assert not disks.find(machine({})).facts

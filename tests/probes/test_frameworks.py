"""What holds for every probe on a machine on which there is nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from pathlib import Path

#: Of these something is found on every machine.
SYSTEM = {"cpu", "environment", "host", "limits", "memory", "uses"}
ABSENCES = {"not-found", "not-followed", "not-this-platform"}


@pytest.mark.parametrize("name", sorted({*registry.names("mlbackends_probes")} - SYSTEM))
def test_a_machine_with_nothing_says_what_is_not_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "proc").mkdir()
    finding = registry.load("mlbackends_probes", name).find(Host(str(tmp_path)))

    assert finding.presence in (None, Presence.ABSENT)
    assert (finding.libraries, finding.devices, finding.warnings) == ((), (), ())
    (reason,) = finding.reasons
    assert reason.code in ABSENCES
    assert reason.message


def test_a_search_names_the_folders_of_the_variables(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    host = Host(str(tmp_path), environment={"CUDA_HOME": "/opt/mine"})

    (reason,) = registry.load("mlbackends_probes", "cuda_runtime").find(host).reasons

    assert "CUDA_HOME (/opt/mine)" in reason.message

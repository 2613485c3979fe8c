"""A survey claims no more than what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.model.records import Presence
from mlbackends.probing.host import Host
from mlbackends.probing.survey import survey

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("content", ["", "\0" * 100, "garbage\n"])
def test_a_processor_of_which_nothing_is_told_is_not_found(tmp_path: Path, content: str) -> None:
    (tmp_path / "proc").mkdir()
    for name in ("cpuinfo", "meminfo"):
        (tmp_path / "proc" / name).write_text(content)

    for name, told in survey(("cpu", "memory"), Host(str(tmp_path))).probes.items():
        assert told.presence is None, name
        assert told.failure is not None
        assert told.failure.message == "none of what it reads is here, or makes sense"
        assert told.failure.traceback == ""


def test_one_fact_is_enough_to_be_found(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  1024 kB\n")

    told = survey(("memory",), Host(str(tmp_path))).probes["memory"]
    assert (told.presence, told.failure) == (Presence.FOUND, None)
    assert told.facts["total_bytes"] == 1 << 20


def test_a_process_without_variables_has_none_and_is_no_failure() -> None:
    told = survey(("environment",), Host(environment={})).probes["environment"]

    assert (told.presence, told.facts, told.failure) == (Presence.FOUND, {"variables": {}}, None)

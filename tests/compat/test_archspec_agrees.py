"""Our names of microarchitectures beside archspec's."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends_probes import cpu

archspec: Any = pytest.importorskip("archspec.cpu", reason="archspec is not installed")


def test_every_name_is_one_of_archspec() -> None:
    names = table("host/cpu/microarchitectures")
    ours = {row["archspec"] for row in names["x86"] if "archspec" in row}

    assert {*ours, *names["archspec"].values()} <= set(archspec.TARGETS)


def test_this_processor_is_what_archspec_takes_it_for() -> None:
    """A virtual machine may hide instructions; then archspec, which goes by them, names an ancestor."""
    found = cpu.find(Host("/")).facts.get("archspec")
    if found is None:
        pytest.skip("this processor has no name in archspec")
    ours, theirs = archspec.TARGETS[found], archspec.host()

    assert theirs == ours or theirs in ours.ancestors

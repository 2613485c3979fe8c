"""The programs of the reports about CPUs: with what is installed, each is wrong where its report says so."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from mlbackends.host.cpu.cpuinfo import cpu_flags
from mlbackends.host.host import Host
from mlbackends.known_wrong import Entry, Place, entries, is_there

_SECONDS = 120
PROGRAMS = [entry for entry in entries() if entry.repro and entry.platforms == ("cpu",)]


def installed(name: str) -> str:
    """Return the version of a distribution, "" for none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


@pytest.mark.parametrize("entry", PROGRAMS, ids=lambda entry: entry.name)
def test_a_program_is_wrong_exactly_where_its_report_says_so(entry: Entry) -> None:
    versions = {name: installed(name) for name in {entry.product, *entry.versions}}
    if not all(versions.values()):
        pytest.skip(f"{entry.product} is not installed")
    host = Host("/")
    place = Place("cpu", versions, frozenset({host.machine, *cpu_flags(host)}), sys.platform)
    command = [sys.executable, "-P", "-W", "ignore", "-c", entry.repro]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    words = done.stdout.split()

    assert words and words[-1] in ("wrong", "right"), done.stderr[-500:]
    if not is_there(entry, place):
        assert words[-1] == "right"
    elif not entry.unpredictable and not entry.chips:
        assert words[-1] == "wrong"

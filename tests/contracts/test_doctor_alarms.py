"""Machines that work raise no alarm: those recorded by others for other programs, and this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbackends.audit.reports import LIVE, report_of
from mlbackends.audit.runner import examine
from mlbackends.model.audit import Severity
from mlbackends.model.records import Presence

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
#: Machines in daily use, whose owners recorded them for util-linux or hwloc: none was recorded for a fault.
IN_USE = sorted(
    path.stem
    for path in HOSTS.glob("*.machine")
    if "Recorded in part, by its owner" in path.read_text(encoding="utf-8", errors="replace")[:2000]
)
#: What is true of one of them: its scaling_max_freq is below its cpuinfo_max_freq.
TRUE = {("phone-cortex-x3", "cpu-frequency-capped")}
#: Errors that the machine or container below the tests' environment may cause, and no defect of ours.
OF_THE_MACHINE = frozenset({
    "address-space-limit", "cuda-driver-library-missing", "cuda-stub-library", "isa-beyond-hardware",
    "locked-memory-limit", "memory-faulty", "nvidia-compat-library", "nvidia-device-nodes-missing",
    "nvidia-driver-older-than-runtime", "nvidia-kernel-library-mismatch", "nvidia-module-does-not-fit",
    "rocm-kfd-not-accessible", "wsl-first-version", "wsl-linux-driver",
})  # fmt: skip


def alarms(subject: str, least: Severity) -> set[str]:
    """Return the codes that doctor raises on a machine, of a severity or worse."""
    outcome = examine(report_of(subject, depth=Presence.FOUND))
    return {check.code for check in outcome.failed(least)}


@pytest.mark.parametrize("name", IN_USE)
def test_a_machine_in_use_raises_no_alarm(name: str) -> None:
    found = alarms(str(HOSTS / f"{name}.machine"), Severity.WARNING)

    assert {(name, code) for code in found} - TRUE == set()


def test_the_environment_of_the_tests_raises_no_error() -> None:
    assert alarms(LIVE, Severity.ERROR) - OF_THE_MACHINE == set()

"""Hazards of a driver that shows its GPUs and lets no program compute, on reports that are written in sight.

tests/cli/test_described_machines.py has them as the probes tell them.
"""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.audit.runner import examine
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Check, Severity, Status
from mlbackends.model.records import (
    SCHEMA,
    Device,
    FactValue,
    Library,
    Presence,
    ProbeReport,
    Report,
)

HAS = LACKS = ("cuda-does-not-start", "nvidia-vgpu-unlicensed", "accelerator-out-of-reach")
START, LICENCE, REACH = HAS


def judged(code: str, *refusals: str, warning: str = "", facts: Any = None, **gpu: FactValue) -> Check:
    """Return the check of a machine whose cuda_driver refuses with those codes."""
    device = Device("cuda", 0, "NVIDIA L40S", Presence.LOADABLE, facts=gpu)
    warnings = (Reason(warning, "a warning"),) if warning else ()
    probes = {
        "nvidia": ProbeReport(Presence.USABLE, devices=(device,), facts=facts or {}, warnings=warnings),
        "cuda_driver": ProbeReport(
            Presence.LOADABLE if refusals else Presence.USABLE,
            reasons=tuple(Reason(refusal, f"cuInit returned {refusal}", "do so") for refusal in refusals),
        ),
        "host": ProbeReport(Presence.FOUND, facts={"platform": "linux", "container": "none"}),
    }
    report = Report(SCHEMA, "test", Presence.USABLE, "/", "2026-01-01T00:00:00Z", 0.0, False, probes)
    (check,) = examine(report, only=(code,)).checks
    return check


@pytest.mark.parametrize(
    ("refusal", "severity"),
    [
        ("initialization-failed", Severity.ERROR),
        ("mps-unreachable", Severity.ERROR),
        ("no-device", Severity.ERROR),
        ("call-failed", Severity.ERROR),
        ("device-unavailable", Severity.WARNING),
    ],
)
def test_a_driver_that_refuses_is_told_of(refusal: str, severity: Severity) -> None:
    check = judged(START, refusal)

    assert (check.status, check.severity) == (Status.FAILED, severity)
    assert check.message == f"cuInit returned {refusal}"


@pytest.mark.parametrize(
    ("refusals", "warning"),
    [
        ((), ""),
        (("fabric-not-ready",), ""),
        (("driver-mismatch",), ""),
        (("no-device",), "hidden-by-variable"),
        (("no-device",), "permission-denied"),
        (("device-unavailable",), "compute-prohibited"),
    ],
)
def test_what_another_hazard_tells_is_not_told_again(refusals: tuple[str, ...], warning: str) -> None:
    assert judged(START, *refusals, warning=warning).status in (Status.PASSED, Status.SKIPPED)


def test_hmm_is_not_blamed_where_it_is_off() -> None:
    off = {"module_parameters": {"uvm_disable_hmm": "Y"}}

    assert "HMM is off already" in judged(START, "initialization-failed", facts=off).hint
    assert judged(START, "initialization-failed").hint == "do so"


def test_a_vgpu_needs_a_licence() -> None:
    assert judged(LICENCE, virtualisation="vgpu", licensed=False).status is Status.FAILED
    assert judged(LICENCE, virtualisation="vgpu", licensed=True).status is Status.PASSED
    assert judged(LICENCE, virtualisation="vgpu").status is Status.PASSED
    assert judged(LICENCE, virtualisation="passthrough").status is Status.SKIPPED


def reached(probe: str, code: str, *, warning: str = "", **fields: Any) -> Check:
    """Return the check of a machine with two accelerators, of which a runtime says that."""
    cards = tuple(Device("card", index, "Card", pci_address="0000:05:00.0") for index in range(2))
    told = {
        "devices": cards,
        "libraries": (Library("runtime", "/usr/lib/libruntime.so"),),
        "reasons": (Reason(code, fields.pop("message", "it finds none")),),
        "warnings": (Reason(warning, "a warning"),) if warning else (),
        **fields,
    }
    probes = {probe: ProbeReport(Presence.LOADABLE, **told)}
    report = Report(SCHEMA, "test", Presence.USABLE, "/", "2026-01-01T00:00:00Z", 0.0, False, probes)
    (check,) = examine(report, only=(REACH,)).checks
    return check


@pytest.mark.parametrize(
    ("probe", "code", "severity"),
    [
        ("rocm", "no-device", Severity.WARNING),
        ("xpu", "no-driver", Severity.NOTE),
        ("ascend", "call-failed", Severity.WARNING),
        ("neuron", "permission-denied", Severity.WARNING),
    ],
)
def test_an_accelerator_that_its_runtime_does_not_reach(probe: str, code: str, severity: Severity) -> None:
    check = reached(probe, code)

    assert (check.status, check.severity) == (Status.FAILED, severity)
    assert check.message == "it finds none; the kernel lists Card at 0000:05:00.0"


def test_an_accelerator_that_nothing_would_use_is_left_alone() -> None:
    assert reached("gaudi", "not-found", libraries=()).status is Status.SKIPPED
    assert reached("gaudi", "not-found").status is Status.PASSED
    assert reached("rocm", "no-device", warning="hidden-by-variable").status is Status.PASSED
    closed = reached("xpu", "permission-denied", message="/dev/dri/renderD128 is there, and shut")
    assert closed.status is Status.PASSED

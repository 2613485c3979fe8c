"""Packages that do not load, as the probe `loading` follows them from their files."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mlbackends.audit.runner import examine
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Check, Severity, Status
from mlbackends.model.records import SCHEMA, Presence, ProbeReport, Report

FAILS, BREAKS, FALLS_BACK = "does not load", "loads, then fails", "loads, then falls back"
LIBCUDART = "libcudart.so.13: cannot open shared object file: No such file or directory"
#: Each hazard, and a fault that it is.
HAS = (
    ("executable-stack-refused", "executable-stack", FAILS),
    ("gpu-code-missing", "no-code-for-chip", BREAKS),
    ("library-file-damaged", "not-a-library", FAILS),
    ("library-not-found", "missing-library", FAILS),
    ("library-not-opened-later", "not-opened-later", FALLS_BACK),
    ("library-version-missing", "missing-version", FAILS),
    ("package-for-another-python", "wrong-python", FAILS),
    ("symbol-not-defined", "missing-symbol", FAILS),
    ("system-too-old-for-package", "driver-too-old", FAILS),
)
LACKS = tuple(code for code, _, _ in HAS)


def row(fault: str, verdict: str = FAILS, **changes: str) -> dict[str, str]:
    """Return the fault of a package as the probe reports it."""
    usual = {"package": "sgl-kernel", "version": "0.3", "name": "libcudart.so.13", "message": LIBCUDART}
    return {**usual, "code": fault, "verdict": verdict, "command": "pip install x", **changes}


def of(*rows: dict[str, str], presence: Presence = Presence.FOUND, **packages: Any) -> Report:
    """Return a report with these faults. packages: facts of the probe packages."""
    followed: dict[str, Any] = {"followed": 3} if presence is Presence.FOUND else {}
    probes = {
        "host": ProbeReport(Presence.FOUND, facts={"platform": "linux"}),
        "packages": ProbeReport(Presence.FOUND, facts={"count": 3, **packages}),
        "loading": ProbeReport(presence, facts={**followed, **({"faults": [*rows]} if rows else {})}),
    }
    return Report(SCHEMA, "test", Presence.USABLE, "/", "2026-01-01T00:00:00Z", 1.0, False, probes)


def found(subject: Report, *codes: str) -> list[Check]:
    return [check for check in examine(subject, only=codes).checks if check.status is Status.FAILED]


@pytest.mark.parametrize(("code", "fault", "verdict"), HAS)
def test_each_kind_of_fault_is_one_hazard_with_its_command(code: str, fault: str, verdict: str) -> None:
    [check] = found(of(row(fault, verdict)), *LACKS)

    assert check.code == code
    assert check.message == f"sgl-kernel 0.3 {verdict}: {LIBCUDART}"
    assert check.command == "pip install x"
    expected = Severity.WARNING if verdict == FALLS_BACK else Severity.ERROR
    assert check.severity is expected


def test_nothing_is_found_where_all_packages_load_and_nothing_is_checked_on_a_recording() -> None:
    recorded = of(presence=Presence.ABSENT)

    assert {check.status for check in examine(of(), only=LACKS).checks} == {Status.PASSED}
    assert {check.status for check in examine(recorded, only=LACKS).checks} == {Status.SKIPPED}


@pytest.mark.parametrize(
    ("fault", "packages"),
    [
        (row("missing-library"), {"missing_files": [{"name": "sgl-kernel", "version": "0.3", "files": 1}]}),
        (row("missing-version", name="GLIBC_2.38"), {"glibc_needed": {"sgl-kernel": "2.38"}}),
        (row("no-code-for-chip", BREAKS, package="torch"), {}),
        (row("cpu-too-old", package="polars"), {}),
    ],
)
def test_what_another_hazard_reports_is_not_reported_twice(
    fault: dict[str, str], packages: dict[str, Any]
) -> None:
    assert found(of(fault, **packages), *LACKS) == []


def test_the_words_of_a_failed_import_are_the_finding() -> None:
    subject = of(row("missing-library", package="other"))
    words = f"import torch fails: ImportError: {LIBCUDART}"
    facts: dict[str, Any] = {"location": "/site/torch", "distribution": "torch", "imports": {"torch": words}}
    torch = ProbeReport(Presence.FOUND, "2.0", facts, reasons=(Reason("import-failed", words),))
    both = replace(subject, probes={**subject.probes, "torch": torch})

    assert found(both, "library-not-found") == []
    assert len(found(both, "package-cannot-be-imported")) == 1

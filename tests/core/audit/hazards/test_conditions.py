"""Hazards that are conditions and texts: a report that has one, and its neighbours that lack it."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.audit.runner import examine
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Severity, Status
from mlbackends.model.records import SCHEMA, Device, Presence, ProbeReport, Report

E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE


def told(version: str = "", **fields: Any) -> ProbeReport:
    """Return what a probe reports; fields that no probe has are its facts."""
    names = [name for name in fields if name in ProbeReport.__struct_fields__]
    own = {name: fields.pop(name) for name in names}
    return ProbeReport(own.pop("presence", Presence.FOUND), version=version, facts=fields, **own)


def report(**probes: ProbeReport) -> Report:
    probes = {"host": told(platform="linux"), "environment": told(variables={}), **probes}
    return Report(SCHEMA, "test", Presence.USABLE, "/", "2026-01-01T00:00:00Z", 0.0, False, probes)


def gpu(capability: str = "9.0", name: str = "NVIDIA H100") -> ProbeReport:
    device = Device("cuda", 0, name, Presence.LOADABLE, capability=capability)
    return told(devices=(device,), cuda_version="12.8", driver_release="570.86.15")


def compilers(*names: str) -> ProbeReport:
    return told(compilers=[{"name": name, "path": f"/usr/bin/{name}"} for name in names])


def busy(**facts: Any) -> Report:
    """Return a machine with 8 CPUs."""
    return report(limits=told(online_cpus=8, effective_cpus=8, **facts))


def variables(**values: str) -> ProbeReport:
    return told(variables=values)


def building(platform: str, *names: str, **choices: str) -> Report:
    """Return a machine with torch and these compilers."""
    found = compilers(*names)
    found.facts["environment"] = dict(choices)
    return report(host=told(platform=platform), torch=told("2.9.0"), compilers=found)


def without_headers(has_headers: bool | None = False, **probes: ProbeReport) -> Report:
    python = told() if has_headers is None else told(has_headers=has_headers)
    return report(
        **{"nvidia": gpu(), "triton": told("3.5.0"), "compilers": compilers("gcc"), **probes},
        python=python,
    )


THROTTLED = (Reason("throttled", "the CPU quota stopped this group"),)
#: A hazard, a report, and the severity of its findings; None for none.
CASES: list[tuple[str, Report, Severity | None]] = [
    ("cpu-contended", busy(cpu_pressure=60.0, load_average=20.0), W),
    ("cpu-contended", busy(cpu_pressure=60.0, load_average=8.0), None),  # each has a CPU
    ("cpu-contended", busy(cpu_pressure=10.0, load_average=20.0), None),  # they wait for disks
    ("cpu-contended", busy(load_average=20.0, runnable_threads=14), W),  # a kernel without PSI
    ("cpu-contended", busy(load_average=20.0, runnable_threads=2), None),
    ("cpu-contended", busy(process_waiting_share=0.4, process_running_threads=4), W),
    ("cpu-contended", busy(process_waiting_share=0.1, process_running_threads=4), None),
    ("cpu-contended", busy(process_waiting_share=0.4, process_running_threads=30), None),
    (
        "cpu-contended",
        report(
            limits=told(
                effective_cpus=8,
                process_waiting_share=0.4,
                process_running_threads=4,
                warnings=THROTTLED,
            )
        ),
        None,
    ),
    ("compiler-missing-for-torch-compile", building("linux", "gcc"), N),
    ("compiler-missing-for-torch-compile", building("linux", "g++"), None),
    ("compiler-missing-for-torch-compile", building("darwin", "g++"), N),
    ("compiler-missing-for-torch-compile", building("darwin", "clang++"), None),
    ("compiler-missing-for-torch-compile", building("win32", "g++"), N),
    ("compiler-missing-for-torch-compile", building("win32", "cl"), None),
    ("compiler-missing-for-torch-compile", building("win32", CXX="clang-cl"), None),
    (
        "numpy-feature-variables",
        report(
            numpy=told("2.3.0"),
            environment=variables(NPY_DISABLE_CPU_FEATURES="AVX2", NPY_ENABLE_CPU_FEATURES="FMA3"),
        ),
        E,
    ),
    (
        "numpy-feature-variables",
        report(numpy=told("2.3.0"), environment=variables(NPY_ENABLE_CPU_FEATURES="FMA3")),
        None,
    ),
    ("python-headers-missing", without_headers(), W),
    ("python-headers-missing", without_headers(True), None),
    ("python-headers-missing", without_headers(None), None),
    ("python-headers-missing", without_headers(compilers=compilers()), None),
    ("python-headers-missing", without_headers(nvidia=told()), None),
    (
        "packages-do-not-fit",
        report(
            packages=told(),
            flash_attention=told(warnings=(Reason("conflict", "flashinfer-cubin is 0.6.8"),)),
        ),
        E,
    ),
    (
        "packages-do-not-fit",
        report(
            packages=told(),
            flash_attention=told(warnings=(Reason("conflict", "flash-attn is for torch 2.8"),)),
        ),
        W,
    ),
    (
        "cpu-governor",
        report(cpu=told(energy_preference="power"), host=told(platform="linux", on_battery=False)),
        W,
    ),
    (
        "cpu-governor",
        report(cpu=told(energy_preference="power"), host=told(platform="linux", on_battery=True)),
        None,
    ),
    *(
        (
            "debugging-allocator",
            report(
                torch=told(version), environment=variables(PYTORCH_NO_CUDA_MEMORY_CACHING=value)
            ),
            severity,
        )
        for version, value, severity in (
            ("2.5.1", "0", W),
            ("2.6.0", "0", None),
            ("2.5.1", "1", W),
            ("2.6.0", "1", W),
        )
    ),
]
HAS = tuple(code for code, _, severity in CASES if severity)
LACKS = tuple(code for code, _, severity in CASES if not severity)


@pytest.mark.parametrize(("code", "subject", "severity"), CASES)
def test_a_report_has_a_hazard_or_not(
    code: str, subject: Report, severity: Severity | None
) -> None:
    checks = examine(subject, only=(code,)).checks

    found = [check for check in checks if check.status is Status.FAILED]

    assert [check.severity for check in found] == ([severity] if severity else [])
    assert all(check.status in (Status.PASSED, Status.SKIPPED) for check in checks if not severity)
    for check in found:
        assert check.evidence and check.message[-1] not in ".:" and "unknown" not in check.message


def counting(**facts: Any) -> Report:
    rows = [{"runtime": "OpenMP", "cpus": 64, "because": "OMP_NUM_THREADS is 64"}]
    facts = {"effective_cpus_because": "online", "threads_expected": rows, **facts}
    return busy(**facts)


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        (counting(), "OpenMP (64) start more threads than the 8 CPUs"),
        (
            counting(process_threads=4),
            "",
        ),  # the variable requests them, the process has not started them
        (
            counting(process_threads=70, process_running_threads=2),
            "the process has 70 threads, 2 of",
        ),
        (counting(process_threads=70, threads_expected=[]), ""),  # they sleep
        (
            counting(process_threads=70, process_running_threads=40, threads_expected=[]),
            "40 of them",
        ),
    ],
)
def test_the_threads_of_a_process_are_counted(subject: Report, message: str) -> None:
    (check,) = examine(subject, only=("threads-exceed-cpus",)).checks

    assert check.status is (Status.FAILED if message else Status.PASSED)
    assert message in check.message

"""Hazards of Windows, on composed reports that have them and on those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.audit.runner import examine
from mlbackends.base.reasons import Reason
from mlbackends.libraries.windows import REDISTRIBUTABLE
from mlbackends.model.audit import Check, Severity, Status
from mlbackends.model.records import SCHEMA, Library, Presence, ProbeReport, Report

SITE = "C:/Python311/Lib/site-packages"


def examined(code: str, **probes: ProbeReport) -> list[Check]:
    """Return the checks of one hazard on a Windows with these probes' reports."""
    host = probes.pop("host", found())
    host = ProbeReport(Presence.FOUND, facts={"platform": "win32", **host.facts})
    named = {name: found() for name in ("python", "packages", "cpu", "torch", "cuda_runtime", "openmp")}
    everything = {**named, "host": host, **probes}
    report = Report(SCHEMA, "0", Presence.USABLE, "/", "", 0.0, False, everything)
    return list(examine(report, only=(code,)).checks)


def found(*libraries: Library, warnings: tuple[Reason, ...] = (), **facts: Any) -> ProbeReport:
    return ProbeReport(Presence.FOUND, libraries=libraries, facts=facts, warnings=warnings)


def torch(version: str = "2.9.1", **facts: Any) -> Library:
    path = f"{SITE}/torch/lib/torch_cpu.dll"
    return Library("torch", path, "torch_cpu.dll", version, found_by="site-packages", facts=facts)


def copy(path: str, version: str, found_by: str, *reasons: Reason) -> Library:
    name = path.rpartition("/")[2]
    return Library(name, path, name, version, found_by=found_by, reasons=reasons)


ANOTHER = Reason("wrong-architecture", "the file is for i386; this Python is x86_64")
LACKING = Reason("missing-dependency", "it needs MSVCP140.dll, which ...", REDISTRIBUTABLE)
WHEEL = copy(f"{SITE}/nvidia/cudnn/bin/cudnn64_9.dll", "9.10.2", "site-packages")
OTHER = copy("C:/cuda/bin/cudnn64_9.dll", "9.1.0", "PATH")


#: A hazard's code, the machine that has it, and words of what is said.
HAS: list[tuple[str, dict[str, ProbeReport], str]] = [
    ("visual-cpp-runtime-missing", {"torch": found(torch(missing_libraries=["libomp140.x86_64.dll",
     "uv.dll"]))}, "torch_cpu.dll needs libomp140.x86_64.dll, which the loader does not find"),
    ("visual-cpp-runtime-missing", {"openblas": found(copy("C:/a/openblas.dll", "", "PATH", LACKING))},
     "C:/a/openblas.dll: it needs MSVCP140.dll"),
    ("visual-cpp-runtime-old", {"torch": found(torch(cxx_runtime_version="14.36.32532",
     cxx_runtime_path="C:/W/msvcp140.dll"))}, "loads C:/W/msvcp140.dll, version 14.36.32532; it needs 14.40"),
    ("python-emulated-on-arm", {"cpu": found(translated=True), "host": found(native_machine="aarch64")},
     "is emulated: this Windows is for aarch64"),
    ("long-paths-off", {"packages": found(longest_path=266), "host": found(long_paths=False)},
     "a path of 266 characters"),
    ("conda-not-activated", {"python": found(library_folder_on_path=False, prefix="C:/conda/envs/a")},
     "C:/conda/envs/a/Library/bin"),
    ("cuda-on-path-differs", {"cudnn": found(WHEEL, OTHER)}, "PATH has C:/cuda/bin/cudnn64_9.dll"),
    ("dll-of-another-processor", {"tbb": found(copy(f"{SITE}/tbb12.dll", "", "site-packages", ANOTHER))},
     "tbb12.dll: the file is for i386; this Python is x86_64"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "probes", "words"), HAS)
def test_what_is_wrong_is_told(code: str, probes: dict[str, ProbeReport], words: str) -> None:
    (check,) = examined(code, **probes)

    assert check.status is Status.FAILED
    assert words in check.message
    assert check.hint
    assert check.evidence


#: A hazard's code, and a machine that lacks it.
LACKS: list[tuple[str, dict[str, ProbeReport]]] = [
    ("visual-cpp-runtime-missing", {"torch": found(torch(missing_libraries=["uv.dll"]))}),
    ("visual-cpp-runtime-old", {"torch": found(torch(cxx_runtime_version="14.40.33810"))}),
    ("visual-cpp-runtime-old", {"torch": found(torch("2.8.0", cxx_runtime_version="14.36.1"))}),
    ("visual-cpp-runtime-old", {"torch": found(torch())}),
    ("python-emulated-on-arm", {"cpu": found(translated=False)}),
    ("long-paths-off", {"packages": found(longest_path=266), "host": found(long_paths=True)}),
    ("long-paths-off", {"packages": found(longest_path=259), "host": found(long_paths=False)}),
    ("conda-not-activated", {"python": found(library_folder_on_path=True)}),
    ("conda-not-activated", {"python": found()}),
    ("cuda-on-path-differs", {"cudnn": found(WHEEL)}),
    (
        "cuda-on-path-differs",
        {"cudnn": found(WHEEL, copy("C:/cuda/bin/cudnn64_9.dll", "9.10.2", "PATH"))},
    ),
    ("dll-of-another-processor", {"tbb": found(copy("D:/tbb12.dll", "", "PATH", ANOTHER))}),
]


@pytest.mark.parametrize(("code", "probes"), LACKS)
def test_what_is_right_is_passed(code: str, probes: dict[str, ProbeReport]) -> None:
    assert {check.status for check in examined(code, **probes)} == {Status.PASSED}


def meeting(*runtimes: str) -> ProbeReport:
    copies = [
        Library("openmp", f"C:/{i}/omp.dll", "omp.dll", facts={"runtime": runtime})
        for i, runtime in enumerate(runtimes)
    ]
    warning = Reason("conflict", "two runtimes meet", "import torch first")
    return found(*copies, warnings=(warning,), conflicting_copies=[library.path for library in copies])


@pytest.mark.parametrize(
    ("runtimes", "severity"),
    [
        (("intel", "intel"), Severity.ERROR),
        (("intel", "llvm"), Severity.ERROR),
        (("intel", "microsoft"), None),
        (("microsoft", "microsoft"), None),
    ],
)
def test_two_of_intels_runtime_end_a_process_of_windows(
    runtimes: tuple[str, ...], severity: Severity | None
) -> None:
    (check,) = examined("openmp-two-runtimes", openmp=meeting(*runtimes))

    assert (check.severity if check.status is Status.FAILED else None) is severity
    assert severity is None or "torch" in check.hint

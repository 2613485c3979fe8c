"""A toolkit's stub library shadows the real libcuda or libnvidia-ml."""

import itertools

from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

_SEARCHED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "mapped", "ld.so.cache", "system-folder")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each stub that the loader meets first."""
    for probe in ("cuda_driver", "nvidia"):
        libraries = report.libraries(probe)
        before = itertools.takewhile(lambda library: bool(library.reasons), libraries)
        stubs = [
            library
            for library in before
            if library.found_by in _SEARCHED
            and any(reason.code == "stub-library" for reason in library.reasons)
        ]
        numbered = [library for library in stubs if library.path.endswith(".so.1")]
        for library in numbered or stubs:
            yield Symptom(
                f"{library.path} is a stub for linking, and {library.found_by} puts it before the"
                " driver's own",
                evidence={f"{probe}.libraries.path": [library.path]},
                severity=None if numbered else Severity.NOTE,
            )

"""Programs get ggml libraries of another build than their own."""

import os

from mlbackends.audit.hazard import ReportView, Symptom, Symptoms

_BY_LOADER = ("LD_LIBRARY_PATH", "ld.so.cache", "system-folder")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each name that several builds have."""
    copies = [copy for copy in report.libraries("ggml") if copy.found_by in _BY_LOADER]
    for soname in sorted({copy.soname for copy in copies}):
        paths = [copy.path for copy in copies if copy.soname == soname]
        if len({os.path.dirname(path) for path in paths}) > 1:
            yield Symptom(
                f"programs get {paths[0]}, although {paths[1]} is installed too",
                evidence={"ggml.libraries.path": paths},
            )

"""Programs get ggml libraries of another build than their own.

Found by:  ggml: several files of one name (libggml-base, libllama) on the loader's path.
No alarm:  the copies inside packages and of Ollama, which are found by RPATH; links to one file.
"""

import os

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("ggml",)
WHY = (
    "llama.cpp and whisper.cpp install libraries of the same names, which are compatible only within one "
    "build: programs end with `undefined symbol`, crash, or do not find their backends."
)
FIX = "Remove the older copies, often those in /usr/local/lib, and run ldconfig."
SOURCES = ("ggml-org/llama.cpp#23163", "ggml-org/llama.cpp#8695", "ggml-org/llama.cpp#11313")
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

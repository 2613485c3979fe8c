"""A folder of the loader's search path shadows libraries of wheels.

Found by:  every probe's libraries: of two copies with one soname, the one in LD_LIBRARY_PATH is loaded.
No alarm:  two copies of one version; a folder of the wheel itself; a copy that the loader cannot use;
           libraries that libtorch_cuda itself finds by an RPATH, and those that all files of a wheel find by
           one, as in wheels repaired by auditwheel: an RPATH precedes the variable.
"""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import Shadowed, described, older_than_pinned, shadowed

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("environment", "packages")
WHY = (
    "Libraries in wheels find each other by RUNPATH, which is searched after that variable: they load a "
    "cuBLASLt, nvJitLink or NCCL that they were not built with, and fail with undefined symbols."
)
FIX = "Start Python without that folder in the variable: wheels include their libraries."
SOURCES = (
    "pytorch/pytorch#134929",
    "pytorch/pytorch#131312",
    "pytorch/pytorch#140797",
    "https://man7.org/linux/man-pages/man8/ld.so.8.html",
    "pytorch/pytorch, .ci/manywheel/build_cuda.sh, FORCE_RPATH",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each folder, with every library that it shadows."""
    older = older_than_pinned(report)
    older_path = older[0].path if older else ""
    folders: dict[tuple[str, str], list[Shadowed]] = {}
    for pair in shadowed(report):
        if pair.chosen.path != older_path:
            folder = pair.chosen.path.rpartition("/")[0]
            folders.setdefault((pair.chosen.found_by, folder), []).append(pair)
    for (variable, folder), pairs in folders.items():
        first = pairs[0]
        more = f", and {len(pairs) - 1} more of wheels" if len(pairs) > 1 else ""
        unlike = any(pair.chosen.version and pair.wheel.version for pair in pairs)
        paths: dict[str, list[str]] = {}
        for copy in pairs:
            paths.setdefault(f"{copy.probe}.libraries.path", []).extend(
                (copy.chosen.path, copy.wheel.path)
            )
        yield Symptom(
            f"{variable} names {folder}: {described(first.chosen)} is loaded instead of"
            f" {described(first.wheel)}{more}",
            command=without_folder(report, variable, first.chosen.path),
            evidence={**paths},
            severity=None if unlike else Severity.WARNING,
        )

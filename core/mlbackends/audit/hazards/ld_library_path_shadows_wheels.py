"""A folder of the loader's search path comes before the libraries of wheels.

Found by:  every probe's libraries: of two copies of one soname that in LD_LIBRARY_PATH wins.
No alarm:  both of one version; a folder of the wheel itself; a copy that the loader cannot take; what
           libtorch_cuda needs itself, where it has an RPATH, and what all files of a wheel that need
           it find by one, as in those of auditwheel: an RPATH comes before the variable.
"""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import Shadowed, described, older_than_pinned, shadowed

SEVERITY = Severity.ERROR
PROBLEM = Problem.USER
READS = ("environment", "packages")
WHY = (
    "Libraries of wheels find each other by RUNPATH, which is searched after that variable: they then get"
    " a cuBLASLt, nvJitLink or NCCL that they were not built with, and fail with undefined symbols."
)
FIX = "Start Python without that folder in the variable: wheels carry their own libraries."
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
        unlike = any(one.chosen.version and one.wheel.version for one in pairs)
        paths: dict[str, list[str]] = {}
        for one in pairs:
            paths.setdefault(f"{one.probe}.libraries.path", []).extend(
                (one.chosen.path, one.wheel.path)
            )
        yield Symptom(
            f"{variable} names {folder}: {described(first.chosen)} is taken in place of"
            f" {described(first.wheel)}{more}",
            command=without_folder(report, variable, first.chosen.path),
            evidence={**paths},
            severity=None if unlike else Severity.WARNING,
        )

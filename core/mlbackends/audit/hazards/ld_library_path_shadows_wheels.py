"""A folder of the loader's search path shadows libraries of wheels."""

from mlbackends.audit.environment import without_folder
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.libraries import Shadowed, described, older_than_pinned, shadowed


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
            paths.setdefault(f"{copy.probe}.libraries.path", []).extend((copy.chosen.path, copy.wheel.path))
        yield Symptom(
            f"{variable} names {folder}: {described(first.chosen)} is loaded instead of"
            f" {described(first.wheel)}{more}",
            command=without_folder(report, variable, first.chosen.path),
            evidence={**paths},
            severity=None if unlike else Severity.WARNING,
        )

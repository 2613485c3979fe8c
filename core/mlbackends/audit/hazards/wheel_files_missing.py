"""Libraries of an installed package are not there.

Told by:   packages: RECORD names a library that does not exist (missing_files); a framework that is
           nothing but metadata.
No alarm:  an editable install, whose files lie elsewhere; a package without a RECORD.
"""

from collections.abc import Iterator

from mlbackends.audit.hazard import Symptom
from mlbackends.audit.installing import reinstall
from mlbackends.audit.known import Known
from mlbackends.model.audit import Severity

SEVERITY = Severity.ERROR
READS = ("packages",)
WHY = (
    "Uninstalling one of two packages that own the same files takes them from the other, and so does"
    " an installation that was broken off. `pip check` finds nothing wrong."
)
MEND = "Install the package again, over what is there."
SOURCES = ("sgl-project/sglang#31035", "ai-dynamo/nixl#1705")


def symptoms(known: Known) -> Iterator[Symptom]:
    """Yield one for each package."""
    told = set()
    for row in known.fact("packages.missing_files", []):
        name, version, count = row["name"], row["version"], row["files"]
        told.add(name)
        others = f", and {count - 1} more of its libraries" if count > 1 else ""
        yield Symptom(
            f"{f'{name} {version}'.rstrip()} is installed without {row['example']}{others}",
            command=reinstall(known, name, version),
            evidence={"packages.missing_files": [row]},
        )
    for probe, report in known.report.probes.items():
        for reason in report.reasons:
            words = reason.message.replace(":", " ").replace(",", " ").split()
            if reason.code == "metadata-only" and told.isdisjoint(words):
                name = reason.hint.removeprefix("reinstall ").strip()
                yield Symptom(
                    reason.message,
                    command=reinstall(known, name, known.package(name)) if name else "",
                    evidence={f"{probe}.reasons": ["metadata-only"]},
                )

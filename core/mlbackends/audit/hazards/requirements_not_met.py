"""Packages require others that are not installed, or have another version."""

from mlbackends.audit.environment import install, required_text
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.imports import unimportable, unmet_causes
from mlbackends.base.errors import counted

WARNINGS = (("packages", "requirement-unmet"),)
_SHOWN = 6


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for all."""
    known = [row for failing in unimportable(report) for row in unmet_causes(report, failing)]
    rows = [row for row in report.fact("packages.unmet", []) if row not in known]
    if not rows:
        return
    texts = []
    for row in rows[:_SHOWN]:
        installed = f"{row['installed']} is installed" if "installed" in row else "not installed"
        texts.append(f"{row['package']} {row['version']} needs {required_text(row)} ({installed})")
    more = f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    packages = {row["needs"]: required_text(row) for row in rows if row["needs"] != "python"}
    yield Symptom(
        f"{counted(len(rows), 'requirement')} not met: {'; '.join(texts)}{more}",
        command=install(report, *packages.values()) if packages else "",
        evidence={"packages.unmet": rows},
    )

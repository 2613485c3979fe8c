"""Packages require others that are not installed, or have another version."""

from mlbackends.audit.environment import install_unmet
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
        package = f"{row['package']} {row.get('version', '')}".rstrip()
        texts.append(f"{package} needs {row['needs']}{row.get('wanted', '')} ({installed})")
    more = f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    yield Symptom(
        f"{counted(len(rows), 'requirement')} not met: {'; '.join(texts)}{more}",
        command=install_unmet(report, rows),
        evidence={"packages.unmet": rows},
    )

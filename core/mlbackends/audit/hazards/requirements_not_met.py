"""Packages require others that are not installed, or have another version."""

from typing import Any

from mlbackends.audit import catalogue
from mlbackends.audit.environment import install_unmet
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.imports import unimportable, unmet_causes
from mlbackends.base.errors import counted

_SHOWN = 6


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for all."""
    known = [row for failing in unimportable(report) for row in unmet_causes(report, failing)]
    pairs = set()
    for symptom in catalogue.load("numpy-abi").symptoms(report):
        pairs |= {(name.rpartition(".")[2], "numpy") for name in symptom.evidence}
    for symptom in catalogue.load("torch-extension-mismatch").symptoms(report):
        partners: Any = symptom.evidence.get("torch.partners", [])
        pairs |= {(partner["package"], "torch") for partner in partners}
    rows = [
        row
        for row in report.fact("packages.unmet", [])
        if row not in known and (row["package"], row["needs"]) not in pairs
    ]
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

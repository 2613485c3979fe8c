"""Files of an installed package are missing, or may not be read."""

from mlbackends.audit.environment import readable, reinstall
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.imports import is_named, unimportable


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    named = set()
    for row in report.fact("packages.missing_files", []):
        name, version, count = row["name"], row["version"], row["files"]
        named.add(name)
        if is_named(report, row["example"]) or is_named(report, f" of {name} {version} "):
            continue
        more = f" (and {count - 1} more of its libraries)" if count > 1 else ""
        yield Symptom(
            f"{f'{name} {version}'.rstrip()} is installed, but {row['example']}{more} is missing",
            command=reinstall(report, name, version),
            evidence={"packages.missing_files": [row]},
        )
    for probe, record in report.record.probes.items():
        for reason in record.reasons:
            words = reason.message.replace(":", " ").replace(",", " ").split()
            if reason.code == "metadata-only" and named.isdisjoint(words):
                name = reason.hint.partition("reinstall ")[2].strip()
                closed = reason.message.partition(" may not read ")[2]
                if closed and any(closed in failing.cause for failing in unimportable(report)):
                    continue
                yield Symptom(
                    reason.message,
                    command=readable(closed) if closed else reinstall(report, name, report.package(name)),
                    evidence={f"{probe}.reasons.code": ["metadata-only"]},
                )

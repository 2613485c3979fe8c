"""A disk that programs write to is almost full."""

from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms
from mlbackends.host.python.installing import quoted

_LITTLE, _ALMOST_NOTHING = 1 << 30, 64 << 20


def symptoms(report: ReportView) -> Symptoms:
    """Yield one that names each disk."""
    free = {row["path"]: row["free_bytes"] for row in report.need("disks.free")}
    full = {
        row["path"]: row["used_for"]
        for row in report.need("disks.file_systems")
        if row["used_for"] != "root"
        and free.get(row["path"], _LITTLE) < min(_LITTLE, row["total_bytes"] / 10)
    }
    if not full:
        return
    folder = quoted(next(iter(full)))
    is_linux = report.fact("host.platform") == "linux"
    yield Symptom(
        "; ".join(f"{path} has {free[path] >> 20} MiB left for {use}" for path, use in full.items()),
        command=f"du -xh --max-depth=2 {folder} | sort -h | tail" if is_linux else "",
        evidence={"disks.free": [{"path": path, "free_bytes": free[path]} for path in full]},
        severity=Severity.ERROR if any(free[path] < _ALMOST_NOTHING for path in full) else None,
    )

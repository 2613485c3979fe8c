"""A disk that programs write to is almost full."""

from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

_LITTLE, _ALMOST_NOTHING = 1 << 30, 64 << 20


def symptoms(report: ReportView) -> Symptoms:
    """Yield one that names each disk."""
    left = {row["path"]: row["free_bytes"] for row in report.need("disks.free")}
    full = [
        row
        for row in report.need("disks.file_systems")
        if row["used_for"] != "root"
        and left.get(row["path"], _LITTLE) < min(_LITTLE, row["total_bytes"] / 10)
    ]
    if full:
        named = [
            f"{row['path']} has {left[row['path']] >> 20} MiB left for {row['used_for']}"
            for row in full
        ]
        is_worse = any(left[row["path"]] < _ALMOST_NOTHING for row in full)
        yield Symptom(
            "; ".join(named),
            command=f"du -xh --max-depth=2 {full[0]['path']} | sort -h | tail"
            if report.fact("host.platform") == "linux"
            else "",
            evidence={
                "disks.free": [
                    {"path": row["path"], "free_bytes": left[row["path"]]} for row in full
                ]
            },
            severity=Severity.ERROR if is_worse else None,
        )

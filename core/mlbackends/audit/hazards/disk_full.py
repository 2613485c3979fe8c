"""A disk that programs write to is almost full.

Found by:  disks: less than 1 GiB and less than a tenth is free where the home folder, temporary files or
           caches of models are.
No alarm:  a root file system that nothing of these is on, such as a read-only image, which is always full; a
           small file system that is mostly free.
Severity:  an error below 64 MiB.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
IN_CONTAINER = Problem.USER
READS = ("disks",)
WHY = (
    "Downloads of models and packages end with `No space left on device`; compilers of kernels and data "
    "loaders fail too, often without naming the disk."
)
FIX = "Delete what is no longer needed, or point HF_HOME, TORCH_HOME, TMPDIR and the like to a larger disk."
SOURCES = (
    "https://huggingface.co/docs/huggingface_hub/guides/manage-cache",
    "https://man7.org/linux/man-pages/man3/errno.3.html (ENOSPC)",
)
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

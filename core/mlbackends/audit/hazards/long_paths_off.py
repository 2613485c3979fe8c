"""Windows refuses paths of 260 characters and more, and a package here has one.

Found by:  host: long_paths, by the registry; packages: the longest path in a RECORD.
No alarm:  LongPathsEnabled is 1; packages whose longest path is shorter.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.NODE
READS = ("host", "packages")
WHY = (
    "Such a file cannot be opened, removed or copied: an upgrade stops half-way, and what torch.compile"
    " caches below %TEMP% is not found again."
)
MEND = "Enable long paths, or put the environment into a folder with a shorter name."
SOURCES = (
    "NVIDIA/cuda-python#1820",
    "pytorch/TensorRT#4288",
    "pytorch/pytorch#167891",
    "https://learn.microsoft.com/windows/win32/fileio/maximum-file-path-limitation",
)

#: MAX_PATH, the zero at the end counted.
_LIMIT = 260


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where a path is too long."""
    report.only_on("win32")
    length = report.fact("packages.longest_path", 0)
    if length >= _LIMIT and report.need("host.long_paths") is False:
        key = r"HKLM:\SYSTEM\CurrentControlSet\Control\FileSystem"
        yield Symptom(
            f"a package has a path of {length} characters, and this Windows takes at most 259",
            command=f"Set-ItemProperty {key} LongPathsEnabled 1",
            evidence={"packages.longest_path": length, "host.long_paths": False},
        )

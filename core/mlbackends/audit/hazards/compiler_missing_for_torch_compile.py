"""There is no C compiler for torch.compile and Triton.

Found by:  torch 2 and Triton are installed, and PATH has none of cc, gcc and clang (compilers).
No alarm:  CC names a compiler that is there; Triton is not installed.
Severity:  a note where there is no GPU: it matters for torch.compile alone.
"""

from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms
from mlbackends.host.python.requirements import satisfies

SEVERITY = Severity.WARNING
READS = ("torch", "triton", "compilers")
WHY = (
    "Triton compiles a C file when it first launches a kernel, and torch.compile makes C++ for the"
    " processor: both end with an error where there is no compiler."
)
MEND = "Install a C compiler and the headers of Python."
SOURCES = ("pytorch/pytorch#116696", "pytorch/pytorch#170235", "kubeflow/trainer#2884")

_COMPILERS = frozenset({"cc", "gcc", "clang"})
_COMMANDS = {
    "alpine": "apk add build-base python3-dev",
    "arch": "pacman -S --needed base-devel",
    **dict.fromkeys(("debian", "ubuntu"), "apt-get install -y gcc g++ python3-dev"),
    **dict.fromkeys(
        ("almalinux", "amzn", "centos", "fedora", "rhel", "rocky"),
        "dnf install -y gcc gcc-c++ python3-devel",
    ),
    **dict.fromkeys(("opensuse-leap", "sles"), "zypper install -y gcc gcc-c++ python3-devel"),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where none is there."""
    torch, triton = report.version("torch"), report.version("triton")
    if not triton or not satisfies(torch, ">=2.0"):
        raise DoesNotApply("torch 2 with Triton is not installed")
    if report.fact("host.platform") != "linux":
        raise DoesNotApply("Triton starts a compiler of PATH on Linux alone")
    rows = report.fact("compilers.compilers", [])
    chosen = report.fact("compilers.environment", {}).get("CC", "")
    has_gpu = bool(report.devices("nvidia") or report.devices("rocm"))
    if _COMPILERS.isdisjoint(row["name"] for row in rows) and not chosen:
        yield Symptom(
            f"torch {torch} and triton {triton} are installed, and PATH has none of cc, gcc and clang",
            command=_COMMANDS.get(report.fact("host.os_id", ""), ""),
            evidence={"triton.version": triton, "compilers.compilers": rows},
            severity=None if has_gpu else Severity.NOTE,
        )

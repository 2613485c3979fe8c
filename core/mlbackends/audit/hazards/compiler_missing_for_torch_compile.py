"""torch.compile or Triton finds no compiler.

Found by:  torch 2 is installed, and PATH has no g++, which torch.compile runs to compile CPU code; with
           Triton and a GPU, neither gcc nor clang, which Triton runs (compilers).
No alarm:  CXX or CC names the compiler; systems other than Linux.
Severity:  a note if only torch.compile is affected.
"""

from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms
from mlbackends.host.python.requirements import satisfies

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("torch", "compilers")
WHY = (
    "torch.compile generates C++ for the CPU and fails with InvalidCxxCompiler without g++; Triton "
    "compiles a C file at its first kernel launch, whichever package launches it."
)
FIX = "Install a C and a C++ compiler and the Python headers."
SOURCES = (
    "torch 2.15, torch/_inductor/cpp_builder.py, cpp_compiler_search; config.py, cpp.cxx",
    "triton-lang/triton, runtime/build.py",
    "pytorch/pytorch#116696",
    "kubeflow/trainer#2884",
)

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
    """Yield one for the compiler that Triton runs, else one for that of torch.compile."""
    torch, triton = report.version("torch"), report.version("triton")
    if not satisfies(torch, ">=2.0"):
        raise DoesNotApply("torch 2 is not installed")
    if report.fact("host.platform") != "linux":
        raise DoesNotApply("torch runs a compiler from PATH only on Linux")
    rows = report.fact("compilers.compilers", [])
    names, chosen = {row["name"] for row in rows}, report.fact("compilers.environment", {})
    has_gpu = bool(report.devices("nvidia") or report.devices("rocm"))
    lacks_c = triton and has_gpu and names.isdisjoint(("gcc", "clang")) and "CC" not in chosen
    if lacks_c:
        message = (
            f"torch {torch} and triton {triton} are installed, but neither gcc nor clang is on PATH"
        )
    elif "g++" not in names and "CXX" not in chosen:
        message = f"torch {torch} is installed, but g++, which torch.compile needs, is not on PATH"
    else:
        return
    yield Symptom(
        message,
        command=_COMMANDS.get(report.fact("host.os_id", ""), ""),
        evidence={"torch.version": torch, "compilers.compilers": rows},
        severity=None if lacks_c else Severity.NOTE,
    )

"""MKL uses a slower code branch for reproducible results.

Found by:  environment: MKL_CBWR with a branch below the CPU's instructions (cpu).
No alarm:  AUTO, the CPU's own branch, and on other vendors' CPUs everything but COMPATIBLE, which MKL treats
           as AUTO, like lower-case and unknown words (by MKL_VERBOSE).
"""

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("environment", "cpu")
WHY = (
    "Conditional numerical reproducibility fixes the code branch: equal results on different CPUs cost "
    "the speed of all but the oldest."
)
FIX = "Keep it if results must be equal across different CPUs; AUTO is enough on CPUs of one kind."
SOURCES = ("oneMKL developer guide, Specifying Code Branches", "pytorch/pytorch#15359")
_BELOW_AVX2 = ("COMPATIBLE", "SSE2", "SSE3", "SSSE3", "SSE4_1", "SSE4_2", "AVX")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where the branch leaves instructions unused."""
    value = settings(report).get("MKL_CBWR", "")
    if not value:
        raise DoesNotApply("MKL_CBWR is not set")
    branch = value.removeprefix("BRANCH=").split(",")[0].strip()
    has_avx512 = "avx512f" in report.fact("cpu.features", ())
    slow = branch in _BELOW_AVX2 and report.fact("cpu.avx2") is True
    slow = slow or (branch == "AVX2" and has_avx512)
    if report.fact("cpu.vendor") != "Intel" and branch != "COMPATIBLE":
        return  # other makers' processors get AUTO for every other branch
    if slow:
        best = "AVX-512" if has_avx512 else "AVX2"
        yield Symptom(
            f"MKL_CBWR is {value[:40]!r}: MKL uses that branch, although this CPU has {best}",
            command="export MKL_CBWR=AUTO",
            evidence={
                "environment.variables.MKL_CBWR": value,
                "cpu.x86_64_level": str(report.fact("cpu.x86_64_level", "")),
            },
        )

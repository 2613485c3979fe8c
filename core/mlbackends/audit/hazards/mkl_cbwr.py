"""MKL computes on a slow branch so that results are equal everywhere.

Found by:  environment: MKL_CBWR with a branch below the processor's; cpu: what it has.
No alarm:  AUTO, the processor's own branch, and on other makers' processors all but COMPATIBLE, which MKL
           takes for AUTO, as it does small letters and words that it does not know (by MKL_VERBOSE).
"""

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("environment", "cpu")
WHY = (
    "Conditional numerical reproducibility fixes the branch of the code: equal results on unlike"
    " processors are paid for with the speed of the oldest of them."
)
FIX = "Keep it where results must be equal across processors; AUTO is enough on one kind of them."
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
            f"MKL_CBWR is {value[:40]!r}: MKL takes that branch, and this processor has {best}",
            command="export MKL_CBWR=AUTO",
            evidence={
                "environment.variables.MKL_CBWR": value,
                "cpu.x86_64_level": str(report.fact("cpu.x86_64_level", "")),
            },
        )

"""A variable requests instructions that this CPU lacks.

Found by:  cpu, mkl and onednn: a capability or branch, compared with the CPU's.
No alarm:  a limit above the CPU's instructions: oneDNN's variable sets a maximum, not a minimum.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("cpu",)
WHY = (
    "torch runs the kernels that ATEN_CPU_CAPABILITY names without checking the CPU and crashes with an "
    "illegal instruction; MKL and oneDNN silently use another branch."
)
FIX = "Unset it, or name what the CPU supports."
SOURCES = (
    "torch 2.13, aten/src/ATen/native/DispatchStub.cpp",
    "oneMKL developer guide, Specifying Code Branches",
)
_CODE = "override-exceeds-hardware"
WARNINGS = (("cpu", _CODE), ("mkl", _CODE), ("onednn", _CODE))
_RUNGS = {"DEFAULT": 0, "AVX2": 1, "AVX512": 2}


def symptoms(report: ReportView) -> Symptoms:
    """Yield what the probes found: an error where torch would die of it."""
    used, has = report.fact("cpu.capability", ""), report.fact("cpu.hardware_capability", "")
    dies = _RUNGS.get(used, 0) > _RUNGS.get(has, 0)
    for probe in ("cpu", "mkl"):
        for warning in report.warnings(probe, _CODE):
            name = warning.message.replace("=", " ").split(" ")[0]
            is_error = probe == "cpu" and dies
            yield Symptom(
                warning.message,
                command=f"unset {name}",
                evidence={"cpu.hardware_capability": has, f"{probe}.warnings.code": [_CODE]},
                severity=Severity.ERROR if is_error else None,
            )

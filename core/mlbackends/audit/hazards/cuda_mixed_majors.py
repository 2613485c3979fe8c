"""NVIDIA's packages for two major versions of CUDA are in one environment.

Found by:  packages: names that end in -cu12, -cu13, and unsuffixed ones by their version (cuda_majors).
No alarm:  NVIDIA's empty placeholders; the parts of the CUTLASS DSL, which come for both on purpose.
"""

from mlbackends.audit.environment import uninstall
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
READS = ("packages",)
WHY = (
    "They share folders and, as cuDNN and NCCL do, whole files: which of the two a program gets is"
    " decided by what was installed last."
)
MEND = "Keep the packages of the version that your framework was built for."
SOURCES = ("rapidsai/rapidsai-csp-utils#137", "gpustack/runner#176")
WARNINGS = (("packages", "cuda-majors-mixed"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one, with the packages that torch was not built for."""
    majors = report.fact("packages.cuda_majors", {})
    wanted = str(report.fact("torch.cuda_version", "")).partition(".")[0]
    for warning in report.warnings("packages", "cuda-majors-mixed"):
        hint, command = warning.hint, ""
        if wanted in majors:
            strangers = [
                name for major, names in majors.items() if major != wanted for name in names
            ]
            command = uninstall(report, *strangers)
            hint = (
                f"torch is built for CUDA {wanted}: uninstall the others, then install torch again"
            )
        yield Symptom(
            warning.message, hint=hint, command=command, evidence={"packages.cuda_majors": majors}
        )

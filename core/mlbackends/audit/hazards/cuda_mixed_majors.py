"""NVIDIA packages for two major versions of CUDA are in one environment.

Found by:  packages: names that end in -cu12 or -cu13, and names without a suffix by their version
           (cuda_majors).
No alarm:  NVIDIA's empty placeholders; the parts of the CUTLASS DSL, which are for both versions on purpose.
"""

from mlbackends.audit.environment import reinstall, uninstall
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("packages",)
WHY = (
    "Some share files, such as those of cuDNN and NVSHMEM: the last one installed wins, and uninstalling "
    "one removes files of the other."
)
FIX = (
    "Uninstall those that your framework was not built for, then reinstall those that shared files with "
    "them: a plain install considers them installed."
)
SOURCES = ("sgl-project/sglang#31035", "marin-community/marin#6947", "gpustack/runner#176")
WARNINGS = (("packages", "cuda-majors-mixed"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one, with the packages that torch was not built for."""
    majors = report.fact("packages.cuda_majors", {})
    torch_major = str(report.fact("torch.cuda_version", "")).partition(".")[0]
    for warning in report.warnings("packages", "cuda-majors-mixed"):
        hint, command = warning.hint, ""
        if torch_major in majors:
            strangers = [
                name for major, names in majors.items() if major != torch_major for name in names
            ]
            commands = [uninstall(report, *strangers)]
            for pair in report.fact("packages.owned_twice", []):
                ours = {pair["first"], pair["second"]}.difference(strangers)
                if len(ours) == 1:  # it has files in common with one of the strangers
                    name = ours.pop()
                    version = report.fact("packages.distributions", {}).get(name, "")
                    commands.append(reinstall(report, name, version))
            command = " && ".join(dict.fromkeys(commands))
            hint = f"torch is built for CUDA {torch_major}: uninstall the others"
        yield Symptom(
            warning.message, hint=hint, command=command, evidence={"packages.cuda_majors": majors}
        )

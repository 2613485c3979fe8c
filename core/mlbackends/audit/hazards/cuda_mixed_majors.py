"""NVIDIA packages for two major versions of CUDA are in one environment."""

from mlbackends.audit.environment import reinstall, uninstall
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms

WARNINGS = (("packages", "cuda-majors-mixed"),)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one, with the packages that torch was not built for."""
    majors = report.fact("packages.cuda_majors", {})
    torch_major = str(report.fact("torch.cuda_version", "")).partition(".")[0]
    for warning in report.warnings("packages", "cuda-majors-mixed"):
        hint, command = warning.hint, ""
        if torch_major in majors:
            strangers = [name for major, names in majors.items() if major != torch_major for name in names]
            commands = [uninstall(report, *strangers)]
            for pair in report.fact("packages.owned_twice", []):
                ours = {pair["first"], pair["second"]}.difference(strangers)
                if len(ours) == 1:  # it has files in common with one of the strangers
                    name = ours.pop()
                    version = report.fact("packages.distributions", {}).get(name, "")
                    commands.append(reinstall(report, name, version))
            command = " && ".join(dict.fromkeys(commands))
            hint = f"torch is built for CUDA {torch_major}: uninstall the others"
        yield Symptom(warning.message, hint=hint, command=command, evidence={"packages.cuda_majors": majors})

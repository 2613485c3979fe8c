"""NVIDIA packages for two major versions of CUDA are in one environment."""

from mlbackends.audit.environment import reinstall, uninstall
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms


def symptoms(report: ReportView) -> Symptoms:
    """Yield one, with the packages that torch was not built for."""
    majors = report.fact("packages.cuda_majors", {})
    torch_major = str(report.fact("torch.cuda_version", "")).partition(".")[0]
    for warning in report.warnings("packages", "cuda-majors-mixed"):
        hint, command = warning.hint, ""
        packages = [set(names) for names in majors.values()]
        shared = [
            pair
            for pair in report.fact("packages.owned_twice", [])
            if sum(not own.isdisjoint({pair["first"], pair["second"]}) for own in packages) > 1
        ]
        if torch_major in majors:
            strangers = [name for major, names in majors.items() if major != torch_major for name in names]
            commands = [uninstall(report, *strangers)]
            commands += [
                reinstall(report, name, report.package(name))
                for pair in shared
                for name in {pair["first"], pair["second"]}.difference(strangers)
            ]
            command = " && ".join(dict.fromkeys(commands))
            hint = f"torch is built for CUDA {torch_major}: uninstall the others"
        overwritten = "".join(
            f"; {pair['first']} and {pair['second']} both installed {pair['example']}" for pair in shared
        )
        yield Symptom(
            warning.message + overwritten,
            hint=hint,
            command=command,
            evidence={"packages.cuda_majors": majors, **({"packages.owned_twice": shared} if shared else {})},
            severity=Severity.ERROR if shared else None,
        )

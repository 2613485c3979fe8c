"""A package that is compiled for torch was built for another torch."""

import re

from mlbackends.audit.environment import install
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.audit.imports import is_named
from mlbackends.host.python.requirements import satisfies

_BUILDS = ("cu", "cpu", "rocm", "xpu")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    torch = report.version("torch")
    for partner in report.fact("torch.partners", []):
        name, version, required = partner["package"], partner["version"], partner["wanted"]
        builds = [text.partition("+")[2] for text in (torch, version)]
        if name == "torchvision" and satisfies(version, ">=0.16"):
            builds = [re.sub(r"^(cu\d+)\d$", r"\1", build) for build in builds]
        if satisfies(torch, f"=={required}") is False:
            message = f"{name} {version} is built for torch {required}, but torch {torch} is installed"
            command = install(report, f"torch=={required}", f"{name}=={version.partition('+')[0]}")
        elif builds[0] != builds[1] and all(build.startswith(_BUILDS) for build in builds):
            message = f"{name} {version} and torch {torch} are builds for different devices or CUDA versions"
            command = ""
        else:
            continue
        yield Symptom(
            message, command=command, evidence={"torch.version": torch, "torch.partners": [partner]}
        )
    for extension in report.fact("torch.other_cuda_extensions", []):
        package = extension["path"].rpartition("site-packages/")[2].partition("/")[0]
        # The import that fails is the finding, or the version of the package.
        if is_named(report, extension["needs"]) or any(report.warnings(package, "conflict")):
            continue
        yield Symptom(
            f"{extension['path']} needs {extension['needs']}, but torch {torch} is built for CUDA"
            f" {report.fact('torch.cuda_version', 'of another version')}",
            hint="install the build of that package for torch's CUDA, or a torch for the package's",
            evidence={"torch.version": torch, "torch.other_cuda_extensions": [extension]},
        )

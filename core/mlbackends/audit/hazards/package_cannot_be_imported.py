"""A package is installed, but importing it fails."""

from mlbackends.audit.environment import FRAMEWORKS
from mlbackends.audit.hazard import NotReported, ReportView, Severity, Symptom, Symptoms
from mlbackends.audit.imports import fix, unimportable
from mlbackends.audit.libraries import is_of_a_driver
from mlbackends.base.errors import joined
from mlbackends.base.patterns import pattern
from mlbackends.host.python.installing import quoted
from mlbackends.model.records import OPENED, Presence

#: The libraries of CUDA whose number is CUDA's own.
_OF_CUDA = pattern(r"lib(?:cudart|nvrtc|cublas|cublasLt|nvJitLink)\.so\.(?P<major>\d+)")


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each cause."""
    unsure = ""
    for failing in unimportable(report):
        modules = joined(failing.modules)
        if not failing.is_certain:
            unsure = unsure or f"import {modules} {failing.cause}"
            continue
        version = report.version(failing.probes[0]) if len(failing.modules) == 1 else ""
        evidence = {f"{name}.imports": report.fact(f"{name}.imports") for name in failing.probes}
        command, hint = fix(report, failing), ""
        if not command and "ended the process" in failing.cause:
            python = quoted(str(report.fact("python.executable", "python")))
            program = quoted(f"import {failing.modules[0]}")
            hint = f"see where it ends: {python} -X faulthandler -c {program}"
        major, _, _ = str(report.fact("torch.cuda_version", "")).partition(".")
        library = _OF_CUDA.search(failing.cause)
        if library and major not in ("", library["major"]):
            hint = f"install the builds for CUDA {major}, which torch is built for"
        yield Symptom(
            f"{f'{modules} {version}'.rstrip()} cannot be imported: {failing.cause}",
            hint=hint,
            command=command,
            evidence=evidence,
            severity=Severity.NOTE if is_of_a_driver(failing.cause) else None,
        )
    if unsure:
        raise NotReported(unsure)
    installed = [name for name in FRAMEWORKS if report.fact(f"{name}.location")]
    imports = [report.fact(f"{probe}.imports", {}).values() for probe in report.record.probes]
    if installed and not any(set(outcomes) - {OPENED} for outcomes in imports):
        depth = report.record.depth
        how = "without --deep" if depth is Presence.USABLE else f"with --depth {depth}"
        raise NotReported(f"no package was imported; the report was made {how}")

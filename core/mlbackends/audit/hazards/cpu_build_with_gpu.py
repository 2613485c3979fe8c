"""A framework is built without GPU support on a machine with a GPU."""

from mlbackends.audit.environment import install
from mlbackends.audit.gpus import ROCBLAS_TARGETS
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms

WARNINGS = (("torch", "degraded"), ("jax", "degraded"), ("tensorflow", "degraded"))


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each framework."""
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            # A build for CUDA is one command everywhere where it is a plugin of jax.
            command = install(report, "--upgrade", warning.hint.split()[-1]) if probe == "jax" else ""
            yield Symptom(
                warning.message,
                hint="" if command else warning.hint,
                command=command,
                evidence={f"{probe}.version": report.version(probe)},
            )
    targets = {*ROCBLAS_TARGETS, *report.fact("rocblas.targets", ())}
    gpus = [gpu for gpu in report.devices("rocm") if gpu.capability in targets]
    rocm = report.probe("rocm")
    if rocm and any("/dev/kfd" in reason.message for reason in rocm.reasons):
        gpus = []  # another hazard, or a container that was not given them
    nvidia = any(True for _ in report.warnings("torch", "degraded"))
    if report.fact("torch.built_for") == "cpu" and gpus and not nvidia:
        named = gpus[0].name or gpus[0].capability or gpus[0].pci_address
        yield Symptom(
            f"torch {report.version('torch')} is built for the CPU only, but there is an AMD GPU ({named})",
            hint="install the build of torch for ROCm",
            evidence={"torch.built_for": "cpu", "rocm.gpu_count": len(gpus)},
        )

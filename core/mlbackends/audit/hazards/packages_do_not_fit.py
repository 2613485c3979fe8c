"""Packages that belong together are of versions that do not.

Found by:  jax with jaxlib and its plugins; scipy with numpy; flash-attn, xformers and Transformer Engine
           with the torch and the CUDA that they were compiled for; FlashInfer with its kernels.
No alarm:  releases of a plugin's own within one version of jaxlib.
Severity:  an error for jax, which then does not start.
"""

from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms, from_warning

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("packages",)
WHY = "Compiled parts are made for one version of each other: they do not load, or do so by luck."
MEND = "Install all of them in one command, so that the resolver sees them together."
SOURCES = (
    "jax-ml/jax#17638",
    "jax-ml/jax#15285",
    "Dao-AILab/flash-attention, setup.py (wheels by torch and CUDA)",
    "facebookresearch/xformers#982",
)
WARNINGS = (
    ("flash_attention", "conflict"),
    ("jax", "conflict"),
    ("scipy", "conflict"),
    ("transformer_engine", "conflict"),
    ("xformers", "conflict"),
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each pair."""
    for probe, code in WARNINGS:
        for warning in report.warnings(probe, code):
            yield from_warning(
                warning,
                evidence={f"{probe}.version": report.version(probe)},
                severity=Severity.ERROR if probe == "jax" else None,
            )

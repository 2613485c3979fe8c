"""Deterministic results are requested, but cuBLAS may not give them.

Found by:  environment: a variable that requests determinism (TF_DETERMINISTIC_OPS,
           NVTE_ALLOW_NONDETERMINISTIC_ALGO 0, ...) without CUBLAS_WORKSPACE_CONFIG; or that one with a value
           other than :4096:8 or :16:8.
No alarm:  no request for determinism; a machine without an NVIDIA GPU.
"""

from mlbackends.audit.environment import is_off, is_on, settings
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptom, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("environment", "nvidia")
WHY = (
    "With several streams cuBLAS chooses its workspace at run time, and results differ in the last "
    "digits. It reads the variable once: it must be set before Python starts."
)
FIX = "Set CUBLAS_WORKSPACE_CONFIG before Python starts."
SOURCES = (
    "https://docs.nvidia.com/cuda/cublas/ (Results reproducibility)",
    "pytorch/pytorch#15359",
    "pytorch/pytorch#41377",
)
_NAME = "CUBLAS_WORKSPACE_CONFIG"
_DETERMINISTIC = (":4096:8", ":16:8")
_ASKING = {
    "TF_DETERMINISTIC_OPS": is_on,
    "TF_CUDNN_DETERMINISTIC": is_on,
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": is_off,
    "FLASH_ATTENTION_DETERMINISTIC": is_on,
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one where it is asked for and not given."""
    if not report.devices("nvidia") and not report.libraries("nvidia"):
        raise DoesNotApply("there is no NVIDIA GPU")
    variables = settings(report)
    value = variables.get(_NAME, "")
    asking = [name for name, requests in _ASKING.items() if requests(variables.get(name, ""))]
    if value in _DETERMINISTIC or not (value or asking):
        return
    message = f"{' and '.join(asking)} request{'s' if len(asking) == 1 else ''} deterministic results, but"
    message += f" {_NAME} is {value[:40]!r}" if value else f" {_NAME} is not set"
    if not asking:
        message = f"{_NAME} is {value[:40]!r}, which is not a deterministic workspace"
    names = [*asking, *([_NAME] if value else [])]
    yield Symptom(
        message,
        command=f"export {_NAME}=:4096:8",
        evidence={f"environment.variables.{name}": variables[name] for name in names},
    )

"""Deterministic results are requested, but cuBLAS may not give them."""

from mlbackends.audit.environment import is_off, is_on, settings
from mlbackends.audit.hazard import DoesNotApply, ReportView, Symptom, Symptoms

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

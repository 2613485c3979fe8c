"""A variable overrides what programs decide about TF32.

Found by:  environment: NVIDIA_TF32_OVERRIDE 0 or 1, TORCH_ALLOW_TF32_CUBLAS_OVERRIDE on.
No alarm:  torch.backends' own switches, which programs set knowingly; a machine without an NVIDIA GPU.
"""

from mlbackends.audit.environment import effects, is_on
from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptoms

SEVERITY = Severity.WARNING
READS = ("environment", "nvidia")
WHY = (
    "Results change in the third digit, or matrix products take several times as long, and what"
    " torch.backends.cuda.matmul.allow_tf32 says is not what happens."
)
MEND = "Unset it, and let the program choose its precision."
SOURCES = (
    "PaddlePaddle/Paddle#75476",
    "NVIDIA/TransformerEngine#3014",
    "tensorflow/tensorflow#53742",
)


def _is_given(value: str) -> bool:
    return value in ("0", "1")


_TABLE = {
    "NVIDIA_TF32_OVERRIDE": (
        _is_given,
        "0 forbids TF32 in every NVIDIA library and 1 forces it, whatever programs ask for",
    ),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": (
        is_on,
        "torch starts with float32 matrix products in TF32",
    ),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each of the two that is in effect."""
    if not report.devices("nvidia") and not report.libraries("nvidia"):
        raise DoesNotApply("there is no NVIDIA GPU")
    yield from effects(report, _TABLE)

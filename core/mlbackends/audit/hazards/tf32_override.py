"""A variable overrides what programs decide about TF32.

Found by:  environment: NVIDIA_TF32_OVERRIDE=0, TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1.
No alarm:  torch.backends' own switches, which programs set knowingly; a machine without an NVIDIA GPU;
           NVIDIA_TF32_OVERRIDE=1, of which NVIDIA documents nothing.
Severity:  a note for torch's own variable, which NVIDIA's containers of torch set for everybody.
"""

from msgspec.structs import replace

from mlbackends.audit.environment import effects, is_one
from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptoms

SEVERITY = Severity.WARNING
READS = ("environment", "nvidia")
WHY = (
    "TF32 keeps 10 bits of the mantissa, so results differ from the fourth digit on; without it matrix"
    " products in float32 take several times as long. What the program asks for is not what it gets."
)
MEND = "Unset it, and let the program choose its precision."
SOURCES = (
    "https://developer.nvidia.com/blog/accelerating-ai-training-with-tf32-tensor-cores/",
    "https://docs.pytorch.org/docs/stable/cuda_environment_variables.html",
    "https://docs.monai.io/en/stable/precision_accelerating.html (NVIDIA's containers)",
)
_TABLE = {
    "NVIDIA_TF32_OVERRIDE": (
        lambda value: value == "0",
        "NVIDIA's libraries compute nothing in TF32, whatever programs ask for",
    ),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": (
        is_one,
        "torch's matrix products in float32 are in TF32, whatever set_float32_matmul_precision says",
    ),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each of the two that is in effect."""
    if not report.devices("nvidia") and not report.libraries("nvidia"):
        raise DoesNotApply("there is no NVIDIA GPU")
    for symptom in effects(report, _TABLE):
        is_torch = symptom.message.startswith("TORCH_")
        yield replace(symptom, severity=Severity.NOTE) if is_torch else symptom

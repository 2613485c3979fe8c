"""A variable decides about TF32 for programs.

Found by:  environment: NVIDIA_TF32_OVERRIDE=0, TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1.
No alarm:  torch.backends' own switches, which programs set knowingly; a machine without an NVIDIA GPU;
           NVIDIA_TF32_OVERRIDE=1, of which NVIDIA documents nothing.
Severity:  a note for torch's own variable, which NVIDIA's containers of torch set for everybody.
"""

from msgspec.structs import replace

from mlbackends.audit.environment import effects, is_one
from mlbackends.audit.hazard import DoesNotApply, Problem, ReportView, Severity, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment", "nvidia")
WHY = (
    "TF32 keeps 10 bits of the mantissa, so results differ from the fourth digit on; without it matrix"
    " products in float32 take several times as long. A program that asks for nothing else gets that."
)
MEND = "Unset it, and let the program choose its precision."
SOURCES = (
    "https://developer.nvidia.com/blog/accelerating-ai-training-with-tf32-tensor-cores/",
    "pytorch/pytorch, aten/src/ATen/Context.h (float32_matmul_precision, its first value)",
)
_TABLE = {
    "NVIDIA_TF32_OVERRIDE": (
        lambda value: value == "0",
        "NVIDIA's libraries compute nothing in TF32, whatever programs ask for",
    ),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": (
        is_one,
        "torch's matrix products in float32 are in TF32 until the program sets their precision",
    ),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each of the two that is in effect."""
    if not report.devices("nvidia") and not report.libraries("nvidia"):
        raise DoesNotApply("there is no NVIDIA GPU")
    for symptom in effects(report, _TABLE):
        is_torch = symptom.message.startswith("TORCH_")
        yield replace(symptom, severity=Severity.NOTE) if is_torch else symptom

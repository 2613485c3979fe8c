"""Libraries write a line for every call.

Found by:  environment: the verbose settings of oneDNN, MKL, cuBLAS, cuDNN, NCCL, HIP, XLA and torch.
No alarm:  levels that tell of warnings and errors alone, such as NCCL_DEBUG=WARN.
"""

from mlbackends.audit.environment import effects, is_on
from mlbackends.audit.hazard import ReportView, Severity, Symptoms

SEVERITY = Severity.NOTE
READS = ("environment",)
WHY = (
    "A line for each call takes longer than many of the calls, and fills disks; some of these settings"
    " wait for the GPU to measure it."
)
MEND = (
    "Unset it when the question is answered; `backends trace` reads such lines in a run of its own."
)
SOURCES = (
    "oneDNN developer guide, Verbose mode",
    "oneMKL developer guide, MKL_VERBOSE",
    "cuDNN documentation, Error reporting and API logging",
    "NCCL documentation, NCCL_DEBUG",
    "torch documentation, torch.distributed, TORCH_DISTRIBUTED_DEBUG",
)


def _wordy(value: str) -> bool:
    return value.upper() in ("INFO", "TRACE")


def _positive(value: str) -> bool:
    return not value.isdecimal() or int(value) > 0


def _calls(value: str) -> bool:
    return value.isdecimal() and int(value) >= 3


_LINES = "it writes a line for each call"
_TABLE = {
    "ONEDNN_VERBOSE": (_positive, _LINES),
    "DNNL_VERBOSE": (_positive, _LINES),
    "MKL_VERBOSE": (_positive, _LINES),
    "CUBLAS_LOGINFO_DBG": (is_on, _LINES),
    "CUBLASLT_LOG_LEVEL": (_calls, _LINES),
    "CUDNN_LOGINFO_DBG": (is_on, _LINES),
    "CUDNN_LOGLEVEL_DBG": (_calls, _LINES),
    "NCCL_DEBUG": (_wordy, "each rank writes pages when it starts"),
    "AMD_LOG_LEVEL": (_calls, _LINES),
    "TORCH_DISTRIBUTED_DEBUG": (
        lambda value: value.upper() == "DETAIL",
        "each collective is checked against those of all ranks before it runs",
    ),
    "ONEDNN_JIT_DUMP": (is_on, "each kernel that is compiled is written to a file"),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each of them that is on."""
    yield from effects(report, _TABLE)

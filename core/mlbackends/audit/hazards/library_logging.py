"""Libraries write a line for every call.

Found by:  environment: the verbose settings of oneDNN, MKL, cuBLAS and its relatives, cuDNN, NCCL, HIP
           and torch, read as each library reads them.
No alarm:  levels that tell of warnings and errors alone, such as NCCL_DEBUG=WARN; values that a library
           does not know; cuDNN's without CUDNN_LOGDEST_DBG, where it writes nothing.
"""

from mlbackends.audit.environment import effects, integer, is_number, is_one, settings
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms

SEVERITY = Severity.NOTE
PROBLEM = Problem.USER
READS = ("environment",)
WHY = (
    "A line for each call takes longer than many of the calls, and fills disks; some of these settings"
    " wait for the GPU to measure it."
)
MEND = (
    "Unset it when the question is answered; `backends trace` reads such lines in a run of its own."
)
SOURCES = (
    "https://uxlfoundation.github.io/oneDNN/dev_guide_verbose.html",
    "uxlfoundation/oneDNN, src/common/verbose.cpp",
    "oneMKL developer guide, MKL_VERBOSE",
    "https://docs.nvidia.com/cuda/cublas/ (cuBLASLt logging)",
    "https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/env-variables.html",
    "https://docs.nvidia.com/deeplearning/cudnn/latest/reference/troubleshooting.html (CUDNN_LOGDEST_DBG)",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_DEBUG)",
    "https://docs.pytorch.org/docs/stable/distributed.html (TORCH_DISTRIBUTED_DEBUG)",
)


_ONEDNN = frozenset({
    "1", "2", "-1", "all", "check", "dispatch", "profile", "profile_create", "profile_exec",
})  # fmt: skip


def _onednn(value: str) -> bool:
    """Tell whether oneDNN writes of what it does; "none" and 0 take back what stands before them."""
    words = value.split(",")
    last = max((at for at, word in enumerate(words) if word in ("0", "none")), default=-1)
    return not _ONEDNN.isdisjoint(words[last + 1 :])


def _wordy(value: str) -> bool:
    return value.upper() in ("INFO", "TRACE")


def _traces(value: str) -> bool:
    # Of cuBLASLt and what was made after it: 1 is errors, 2 is calls that launch kernels.
    return integer(value) >= 2


def _masks(value: str) -> bool:
    return integer(value) & ~1 != 0


def _informs(value: str) -> bool:
    return integer(value) >= 3


_LINES = "it writes a line for each call"
_TABLE = {
    "ONEDNN_VERBOSE": (_onednn, _LINES),
    "DNNL_VERBOSE": (_onednn, _LINES),
    "MKL_VERBOSE": (lambda value: integer(value) in (1, 2), _LINES),
    "CUBLAS_LOGINFO_DBG": (is_one, _LINES),
    **dict.fromkeys(
        ("CUBLASLT_LOG_LEVEL", "CUSPARSELT_LOG_LEVEL", "HIPBLASLT_LOG_LEVEL"), (_traces, _LINES)
    ),
    **dict.fromkeys(
        ("CUBLASLT_LOG_MASK", "CUSPARSELT_LOG_MASK", "HIPBLASLT_LOG_MASK"), (_masks, _LINES)
    ),
    "CUDNN_LOGINFO_DBG": (is_one, _LINES),
    "CUDNN_LOGLEVEL_DBG": (_informs, _LINES),
    "NCCL_DEBUG": (_wordy, "each rank writes pages when it starts"),
    "AMD_LOG_LEVEL": (_informs, _LINES),
    "TORCH_DISTRIBUTED_DEBUG": (
        lambda value: value.upper() == "DETAIL",
        "each collective is checked against those of all ranks before it runs",
    ),
    "ONEDNN_JIT_DUMP": (is_number, "each kernel that is compiled is written to a file"),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each of them that is on."""
    is_cudnn_silent = "CUDNN_LOGDEST_DBG" not in settings(report)
    yield from effects(
        report,
        {
            name: effect
            for name, effect in _TABLE.items()
            if not (is_cudnn_silent and name.startswith("CUDNN_"))
        },
    )

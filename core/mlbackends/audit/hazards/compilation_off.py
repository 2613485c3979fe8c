"""Compilers are switched off, or interpret instead.

Found by:  environment: TORCH_COMPILE_DISABLE, TORCHDYNAMO_DISABLE, PYTORCH_JIT, TRITON_INTERPRET,
           JAX_DISABLE_JIT, NUMBA_DISABLE_JIT, NUMBA_ENABLE_CUDASIM, CUDA_FORCE_PTX_JIT.
No alarm:  the same names with a value that the program does not take for yes: torch takes 1 alone,
           Numba and CUDA a number.
"""

from mlbackends.audit.environment import effects, is_number, is_on, is_one
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptoms

SEVERITY = Severity.WARNING
PROBLEM = Problem.USER
READS = ("environment",)
WHY = (
    "torch.compile, jax.jit and numba.jit return without an error and compile nothing: programs give"
    " the right results at a fraction of the speed."
)
MEND = "Unset it when the fault is found."
SOURCES = (
    "torch 2.15, torch/_dynamo/config.py and eval_frame.py, torch/jit/_state.py",
    "https://triton-lang.org/main/programming-guide/chapter-3/debugging.html (TRITON_INTERPRET)",
    "JAX documentation, Configuration options, jax_disable_jit",
    "https://numba.readthedocs.io/en/stable/reference/envvars.html",
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/ (CUDA_FORCE_PTX_JIT)",
)
_TABLE = {
    "TORCH_COMPILE_DISABLE": (is_one, "torch.compile compiles nothing"),
    "TORCHDYNAMO_DISABLE": (is_one, "torch.compile compiles nothing"),
    "PYTORCH_JIT": (
        lambda value: value.lower() in ("0", "0v", "false", "no"),
        "torch.jit.script and trace compile nothing",
    ),
    "TRITON_INTERPRET": (is_on, "Triton's kernels are interpreted in Python"),
    "JAX_DISABLE_JIT": (is_on, "jax.jit compiles nothing"),
    "NUMBA_DISABLE_JIT": (is_number, "numba.jit compiles nothing"),
    "NUMBA_ENABLE_CUDASIM": (is_number, "numba's CUDA kernels run in a simulator"),
    "CUDA_FORCE_PTX_JIT": (
        is_number,
        "the code that libraries bring for this GPU is not used; one without PTX does not start",
    ),
}


def symptoms(report: ReportView) -> Symptoms:
    """Yield each of them that is in effect."""
    yield from effects(report, _TABLE)

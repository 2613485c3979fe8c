"""flash_cpu: flash attention on the CPU, compiled for each instruction set and chosen at run time.

Its memory does not grow with the sequence lengths, and its result does not depend on the number of threads.
"""

from typing import Any

from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import AttentionBackend, Gradients
from mlbackends.sdpa.constraints import dtype_in, last_dim_contiguous, on_device, refusal
from mlbackends.sdpa.switches import SDPBackend
from mlbackends_kernels.attention_cpu.forward import attend
from mlbackends_kernels.attention_cpu.gradients import differentiate
from mlbackends_kernels.attention_cpu.library import (
    NEWER_COMPILER,
    NotBuilt,
    compiled_levels,
    level,
    library,
    missing_levels,
)
from mlbackends_kernels.attention_cpu.threads import get_num_threads
from mlbackends_kernels.tensors.arithmetic import without_numpy

_forward_only = refusal(
    "gradient",
    "no gradients with a softcap, sinks, ALiBi slopes, packed sequences or pages",
    lambda p: p.wants_gradient and (p.softcap or p.sinks or p.alibi_slopes or p.key_lengths),
    "gradients are not supported with a softcap, sinks, ALiBi slopes, packed sequences or pages",
)
_no_dropout_in_pages = refusal(
    "dropout",
    "no dropout with paged keys",
    lambda p: p.dropout and p.page_table,
    "dropout is not supported with paged keys; it is {p.dropout}",
)


class FlashCpu(AttentionBackend):
    """One pass over the keys with an online softmax; no score is ever stored.

    Shapes:  query (..., H, L, E), key (..., Hkv, S, E), value (..., Hkv, S, Ev); the leading dimensions
             broadcast. Returns (..., H, L, Ev) in the memory layout of the query.
    Numbers: 16-bit elements are summed in float32. With AVX-512 BF16, AMX or Arm's BF16, the weights of
             bfloat16 tensors are rounded to bfloat16, and subnormal numbers (below 2^-126) are treated as
             zero, as these instructions do whatever the CPU's control register is set to.
             A row that sees no key is 0; a row whose scores all overflow is NaN. A float32 mask of a
             float64 problem is copied.
    Source:  Dao 2023, FlashAttention-2, algorithm 1; Milakov and Gimelshein 2018, algorithm 3.
    """

    name, answers_to = "flash_cpu", SDPBackend.FLASH_ATTENTION
    constraints = (
        on_device("cpu"),
        dtype_in("float16", "bfloat16", "float32", "float64"),
        last_dim_contiguous(),
        _forward_only(),
        _no_dropout_in_pages(),
    )
    takes = frozenset({
        "alibi", "dropout", "gradient", "grouped_heads", "logsumexp", "lower_right", "mask", "pages",
        "sinks", "softcap", "variable_lengths", "window",
    })  # fmt: skip
    tolerance = {"float16": 2.0, "bfloat16": 2.0, "float32": 2.0, "float64": 2.0}  # noqa: RUF012

    def missing_parts(self) -> tuple[Reason, ...]:
        reasons = without_numpy()
        try:
            library()
        except NotBuilt as error:
            reasons += error.reasons
        return reasons

    def slower_reasons(self) -> tuple[Reason, ...]:
        if not (names := missing_levels()):
            return ()
        why = f"its library was compiled without {', '.join(names)}, which this CPU supports"
        return (Reason("missing-part", why, NEWER_COMPILER),)

    def details(self) -> dict[str, str]:
        return {"instruction set": compiled_levels()[level()], "threads": str(get_num_threads())}

    def run(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> Any:
        self.require(problem)
        return attend(problem, *tensors, **more)[0]

    def run_with_logsumexp(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> tuple[Any, Any]:
        self.require(problem)
        return attend(problem, *tensors, **more, logsumexp=True)

    def run_backward(self, problem: AttentionProblem, grad_out: Any, *tensors: Any) -> Gradients:
        self.require(problem)
        return differentiate(problem, grad_out, *tensors)

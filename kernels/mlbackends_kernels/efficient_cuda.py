"""efficient_cuda: memory-efficient attention on NVIDIA GPUs, in CUDA C++ compiled at its first use.

It has not run on a GPU yet: the same source was emulated on the CPU and compared with float64, and compiled
for sm75 to sm120. It needs cuda-core and NVRTC, but no CUDA toolkit.
"""

from typing import Any

from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.backend import AttentionBackend, Gradients
from mlbackends.sdpa.switches import SDPBackend


class EfficientCuda(AttentionBackend):
    """Attention in one pass over the keys, for any mask and strides; it has not run on a GPU yet.

    Shapes:  query (B, H, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev); returns (B, H, L, Ev). B and H
             may be 1 where the others' are not. A mask of booleans or numbers broadcasts to
             (B, H, L, S). Any strides; rows of aligned 16 bytes are read fastest.
    Numbers: products of 16-bit elements are summed in float32. float32 is multiplied by three products of
             TF32, nearly as accurate as float32; in full on sm75, and if cuda.matmul.fp32_precision
             is "ieee". A row that sees no key is 0, a row whose scores all overflow is NaN. Gradients are
             summed in a fixed order, without atomics, so they are reproducible. The gradient of a mask is
             summed over the batches and heads that share it, and over broadcast rows or keys.
    Source:  Dao 2023, FlashAttention-2, algorithms 1 and 2; Rabe and Staats 2021.
    """

    name, answers_to = "efficient_cuda", SDPBackend.EFFICIENT_ATTENTION
    constraints = (
        need.on_device("cuda"),
        need.capability_between((7, 5), (12, 1)),
        need.rank_is(4),
        need.dtype_in("float16", "bfloat16", "float32"),
        need.head_dim_at_most(256),
    )
    takes = frozenset(
        {
            "gradient", "grouped_heads", "logsumexp", "lower_right", "mask", "sinks", "softcap",
            "window",
        }
    )  # fmt: skip
    tolerance = {"float16": 2.0, "bfloat16": 2.0, "float32": 4.0}  # noqa: RUF012

    def missing_parts(self) -> tuple[Reason, ...]:
        from mlbackends_kernels import attention_cuda

        return attention_cuda.missing_parts()

    def run(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> Any:
        self.require_here(problem)
        from mlbackends_kernels.attention_cuda import device

        return device.attend(problem, *tensors, **more, logsumexp=False)[0]

    def run_with_logsumexp(self, problem: AttentionProblem, *tensors: Any, **more: Any) -> tuple[Any, Any]:
        self.require_here(problem)
        from mlbackends_kernels.attention_cuda import device

        return device.attend(problem, *tensors, **more, logsumexp=True)

    def run_backward(self, problem: AttentionProblem, grad_out: Any, *tensors: Any, **more: Any) -> Gradients:
        self.require_here(problem)
        from mlbackends_kernels.attention_cuda import device

        return device.differentiate(problem, grad_out, *tensors, **more)

"""flash_triton: flash attention on NVIDIA GPUs, written in Triton and compiled at its first use.

It has been run by Triton's interpreter against float64, and compiled for sm80 to sm120; it has not run on
a GPU yet. Triton is not a dependency: without it, that is the reason why this cannot run here.
"""

import os
import sys
from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends.model.reasons import Reason
from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.sdp_backend import SDPBackend

_TORCH_FREE = (3, 9)
"""From this version on Triton launches without torch."""


class FlashTriton(AttentionBackend):
    """One pass over the keys with an online softmax in float32; no score is ever stored.

    Shapes:  query (B, H, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev); returns (B, H, L, Ev). B and H
             may be 1 where the others' are not. A mask of booleans or numbers broadcasts to (B, H, L, S).
    Numbers: products of 16-bit elements are summed in float32; float32 is multiplied in full, or as
             TF32 where cuda.matmul.fp32_precision says so. A row that sees no key is 0;
             one whose scores all overflow is NaN, but 0 beside a mask.
    Source:  Dao 2023, FlashAttention-2, algorithm 1.
    """

    name, answers_to = "flash_triton", SDPBackend.FLASH_ATTENTION
    dsl = "triton"
    constraints = (
        need.on_device("cuda"),
        need.capability_between((8, 0), (12, 1)),
        need.rank_is(4),
        need.dtype_in("float16", "bfloat16", "float32"),
        need.head_dim_at_most(256),
        need.last_dim_contiguous(),
    )
    takes = frozenset({"grouped_heads", "lower_right", "mask"})
    tolerance = {"float16": 2.0, "bfloat16": 2.0, "float32": 4.0}  # noqa: RUF012

    def missing_parts(self) -> tuple[Reason, ...]:
        """Return why Triton cannot launch in this process, as far as files tell: it is not imported."""
        from shutil import which

        from mlbackends.python_native import dsls

        torch, version = sys.modules.get("torch"), dsls.version("triton")
        message = hint = ""
        if missing := dsls.unavailable_reason("triton"):
            message, hint = missing, "pip install triton" if "installed" in missing else ""
        elif torch is None and version is not None and version.release < _TORCH_FREE:
            message = f"triton {version} launches only beside torch"
            hint = "install triton 3.9 or newer"
        elif torch is not None and not torch.cuda.is_available():
            message = "Triton asks the torch in this process for devices, and it has none"
        elif not (os.environ.get("CC") or which("clang") or which("gcc")):
            message = "Triton compiles its launcher with a C compiler, and there is none"
            hint = "install gcc"
        return (Reason("missing-part", message, hint),) if message else ()

    def run(
        self, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
    ) -> Any:
        """Compute it. Raises NoBackend where a constraint is not met or Triton is not there.

        The tensors are torch's, or have DLPack or `__cuda_array_interface__`.
        """
        self.require_here(problem)
        from mlbackends_kernels.cuda.device_array import as_device_array, output_like
        from mlbackends_kernels.triton import launching

        first, shape = as_device_array(query), problem.output_shape
        output = output_like(query, shape, problem.dtype)
        if 0 in shape:
            return output
        what = launching.attention(
            first,
            as_device_array(key),
            as_device_array(value),
            None if mask is None else as_device_array(mask),
            as_device_array(output),
            None,
            scale=(problem.head_dim or 1) ** -0.5 if problem.scale is None else problem.scale,
            causal=problem.is_causal,
            lower_right=problem.lower_right,
            precision=launching.fp32_precision(),
            capability=launching.capability_of(first),
        )
        from mlbackends_kernels.triton.flash_forward import flash_forward

        launching.launch(flash_forward, what)
        return output

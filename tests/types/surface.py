"""What a type checker sees of the library: checked by mypy and pyright, never run.

A line that must be refused ends in an ignore of both; both report an ignore that is not needed.
"""

from __future__ import annotations

from typing import assert_type

import mlbackends
from mlbackends import cuda, cudnn, mkldnn
from mlbackends.cudnn import rnn

assert_type(mlbackends.__version__, str)
assert_type(mlbackends.fp32_precision, str)
assert_type(cudnn.enabled, bool)
assert_type(cudnn.benchmark_limit, int | None)
assert_type(cudnn.version(), int | None)
assert_type(cudnn.conv.fp32_precision, str)
assert_type(rnn.get_cudnn_mode("LSTM"), int)
assert_type(mkldnn.allow_tf32, bool | None)
assert_type(cuda.matmul.allow_tf32, bool)
assert_type(cuda.flash_sdp_enabled(), bool)
assert_type(mlbackends.mps.is_available(), bool)
assert_type(mlbackends.opt_einsum.strategy, str | None)
assert_type(mlbackends.quantized.supported_engines, list[str])
assert_type(mlbackends.get_float32_matmul_precision(), str)

cudnn.benchmark = True
mkldnn.matmul.fp32_precision = "bf16"
cuda.matmul.allow_fp16_reduced_precision_reduction = (False, False)
with cudnn.flags(enabled=True, benchmark=True), mlbackends.flags(fp32_precision="ieee"):
    pass
with mlbackends.sdpa_kernel([mlbackends.SDPBackend.MATH], set_priority=True):
    pass
with mlbackends.mkl.verbose(mlbackends.mkl.VERBOSE_ON), mkldnn.verbose(mkldnn.VERBOSE_OFF):
    pass


@cudnn.flags(enabled=True)
def decorated() -> int:
    return 1


assert_type(decorated(), int)

cudnn.enabledd = True  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
cudnn.benchmark = "yes"  # type: ignore[assignment]  # pyright lets it pass on a module
unknown = mlbackends.cudn  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
cudnn.flags(benchmrk=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
cuda.matmul.allow_tf23 = True  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

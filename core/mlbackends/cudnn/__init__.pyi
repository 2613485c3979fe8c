# Made by man/generate.py from the table of switches and the source beside this file; change those.

from contextlib import _GeneratorContextManager
from mlbackends.cudnn import rnn as rnn
from mlbackends.switches.modules import FP32Precision as FP32Precision
from mlbackends.switches.modules import PropModule as PropModule
from typing import Any as Any

CUDNN_TENSOR_DTYPES: frozenset[str]
conv: FP32Precision
def is_available() -> bool: ...
def version() -> int | None: ...
def is_acceptable(tensor: Any) -> bool: ...
enabled: bool
benchmark: bool
benchmark_limit: int | None
deterministic: bool
allow_tf32: bool
fp32_precision: str
depthwise_kernel: str
class CudnnModule(PropModule):
    enabled: bool
    benchmark: bool
    benchmark_limit: int | None
    deterministic: bool
    allow_tf32: bool
    fp32_precision: str
    depthwise_kernel: str
def set_flags(_enabled: bool | None = None, _benchmark: bool | None = None, _benchmark_limit: int | None = None, _deterministic: bool | None = None, _allow_tf32: bool | None = None, _fp32_precision: str | None = 'none', _depthwise_kernel: str | None = None) -> tuple[bool, bool, int | None, bool, bool, str, str]: ...
def flags(enabled: bool | None = False, benchmark: bool | None = False, benchmark_limit: int | None = 10, deterministic: bool | None = False, allow_tf32: bool | None = True, fp32_precision: str | None = 'none', depthwise_kernel: str | None = 'auto') -> _GeneratorContextManager[None]: ...

# Made by man/generate.py from the table of switches and the source beside this file; change those.

from contextlib import _GeneratorContextManager
from mlbackends.switches.modules import FP32Precision as FP32Precision
from mlbackends.switches.modules import PropModule as PropModule
from mlbackends.tracing.verbose import OnednnVerbose as OnednnVerbose

VERBOSE_OFF: int
VERBOSE_ON: int
VERBOSE_ON_CREATION: int
matmul: FP32Precision
conv: FP32Precision
rnn: FP32Precision
def is_available() -> bool: ...
def is_acl_available() -> bool: ...
enabled: bool
deterministic: bool
allow_tf32: bool | None
fp32_precision: str
class MkldnnModule(PropModule):
    enabled: bool
    deterministic: bool
    allow_tf32: bool | None
    fp32_precision: str
def set_flags(_enabled: bool | None = None, _deterministic: bool | None = None, _allow_tf32: bool | None = None, _fp32_precision: str | None = 'none') -> tuple[bool, bool, bool | None, str]: ...
def flags(enabled: bool | None = False, deterministic: bool | None = False, allow_tf32: bool | None = True, fp32_precision: str | None = 'none') -> _GeneratorContextManager[None]: ...
verbose = OnednnVerbose

# Made by man/generate.py from the table of switches and the source beside this file; change those.

from mlbackends.switches.modules import PropModule as PropModule
from mlbackends.switches.modules import UnfrozenProp as UnfrozenProp
from typing import Any as Any

def get_cudnn_mode(mode: str) -> int: ...
class Unserializable:
    def __init__(self, inner: Any) -> None: ...
    def get(self) -> Any: ...
def init_dropout_state(dropout: float, train: bool, dropout_seed: int, dropout_state: dict[str, Unserializable]) -> Any: ...
fp32_precision: str
class CudnnRNNModule(PropModule):
    fp32_precision: str
ContextProp = UnfrozenProp

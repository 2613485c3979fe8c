# Made by man/generate.py from the table of switches and the source beside this file; change those.

from contextlib import _GeneratorContextManager
from mlbackends.switches.modules import PropModule as PropModule
from typing import Any as Any

def is_available() -> bool: ...
def get_opt_einsum() -> Any: ...
enabled: bool
strategy: str | None
class OptEinsumModule(PropModule):
    enabled: bool
    strategy: str | None
def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[bool, str | None]: ...
def flags(enabled: bool | None = None, strategy: str | None = None) -> _GeneratorContextManager[None]: ...

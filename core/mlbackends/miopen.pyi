# Made by man/generate.py from the table of switches and the source beside this file; change those.

from contextlib import _GeneratorContextManager
from mlbackends.switches.modules import PropModule as PropModule

immediate: bool
class MiopenModule(PropModule):
    immediate: bool
def set_flags(_immediate: bool | None = None) -> tuple[bool]: ...
def flags(immediate: bool | None = False) -> _GeneratorContextManager[None]: ...

# Made by man/generate.py from the table of switches and the source beside this file; change those.

from mlbackends.switches.modules import PropModule as PropModule

engine: str
class QuantizedEngine(PropModule):
    engine: str
supported_engines: list[str]

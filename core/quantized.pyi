# Made by man/generate.py from core/flag_table.py and the source beside this file; change those.

from mlbackends.flag_modules import PropModule as PropModule

engine: str
class QuantizedEngine(PropModule):
    engine: str
supported_engines: list[str]

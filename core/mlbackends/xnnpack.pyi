# Made by man/generate.py from the table of switches and the source beside this file; change those.

from mlbackends.switches.modules import PropModule as PropModule

enabled: bool
class XNNPACKEngine(PropModule):
    enabled: bool

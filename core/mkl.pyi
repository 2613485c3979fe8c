# Made by man/generate.py from core/flag_table.py and the source beside this file; change those.

from mlbackends.verbose_scopes import MklVerbose as MklVerbose

VERBOSE_OFF: int
VERBOSE_ON: int
def is_available() -> bool: ...
verbose = MklVerbose

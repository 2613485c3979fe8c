# Made by man/generate.py from the table of switches and the source beside this file; change those.

from mlbackends.tracing.verbose import MklVerbose as MklVerbose

VERBOSE_OFF: int
VERBOSE_ON: int
def is_available() -> bool: ...
verbose = MklVerbose

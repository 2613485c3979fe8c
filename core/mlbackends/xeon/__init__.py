"""Starting programs on the cores of a server: `python -m mlbackends.xeon.run_cpu`."""

from mlbackends.switches.modules import install

install(__name__, "_XeonModule")

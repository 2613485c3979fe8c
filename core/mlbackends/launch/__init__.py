"""Starting programs on chosen cores, several at a time: torch's xeon.run_cpu without torch.

from mlbackends.launch import Options, launch
code = launch(Options(cores="0-3", ninstances=2, no_python=True), ("python", "serve.py"))
"""

from mlbackends.launch.launcher import Launch, launch, prepare
from mlbackends.launch.options import OPTIONS, Option, Options

__all__ = ["OPTIONS", "Launch", "Option", "Options", "launch", "prepare"]

"""Any command, run with its libraries' tracing on: its own streams stay its own, the trace is a file.

    captured = capture.run(["python", "train.py"], ("onednn",), "trace.log")
    captured.exit_code, captured.files, captured.lines

A line of the file is the library's, behind a stamp where the capture knows who printed it:
"[pid P tid T end NS] ", with the time in nanoseconds since the epoch.
"""

from mlbackends.tracing.capture.captured import Captured
from mlbackends.tracing.capture.command import run
from mlbackends.tracing.capture.programs import NotStarted
from mlbackends.tracing.capture.separation import SEPARATIONS

__all__ = ["SEPARATIONS", "Captured", "NotStarted", "run"]

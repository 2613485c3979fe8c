"""Frames: a report in short, checked lines that survive what cuts and mixes them, for `backends fleet`."""

import os

import msgspec
from msgspec import Raw

from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope
from mlbackends.model.records import Report
from mlbackends.model.writable import writable
from mlbackends_cli.terminal import Page

_NAMES = ("SLURMD_NODENAME", "NODE_NAME")
"""What Slurm calls a node, and what the downward API of Kubernetes is mostly told to."""
_RECORDED = "recorded-machine"


def report(report: Report, _page: Page) -> str:
    """Return the frames of an envelope with the report, whose own names may be redacted."""
    name = _node() if report.root == "/" else _RECORDED
    data = Raw(msgspec.json.encode(writable(report)))
    return "".join(f"{line}\n" for line in frames(Envelope(node=name, report=data)))


def _node() -> str:
    """Return what this node is called."""
    for variable in _NAMES:
        if name := os.environ.get(variable):
            return name
    import platform

    return os.uname().nodename if hasattr(os, "uname") else platform.node()

"""Frames: a report in short, checked lines that survive what cuts and mixes them, for `backends fleet`."""

import msgspec
from msgspec import Raw

from mlbackends.base.writable import writable
from mlbackends.fleet.frames import frames
from mlbackends.fleet.payload import node_name
from mlbackends.model.fleet import Envelope
from mlbackends.model.records import Report
from mlbackends_cli.terminal import Page

_RECORDED = "recorded-machine"


def report(report: Report, _page: Page) -> str:
    """Return the frames of an envelope with the report, whose own names may be redacted."""
    name = node_name() if report.root == "/" else _RECORDED
    data = Raw(msgspec.json.encode(writable(report)))
    return "".join(f"{line}\n" for line in frames(Envelope(node=name, report=data)))

"""Frames: a report in short, checked lines that survive what cuts and mixes them, for `backends fleet`."""

import msgspec
from msgspec import Raw

from mlbackends.fleet.frames import frames
from mlbackends.fleet.payload import node_name
from mlbackends.model.fleet import Envelope, Status
from mlbackends.model.records import Report
from mlbackends.model.writable import writable
from mlbackends_cli.terminal import Page

_RECORDED = "recorded-machine"


def report(report: Report, _page: Page) -> str:
    """Return the frames of an envelope with the report, whose own names may be redacted."""
    name = node_name() if report.root == "/" else _RECORDED
    return _lines(Envelope(node=name, report=Raw(msgspec.json.encode(writable(report)))))


def failure(error: str) -> str:
    """Return the frames of an envelope of this node that has no report, for one reason."""
    return _lines(Envelope(node=node_name(), status=Status.ERROR, error=error))


def _lines(envelope: Envelope) -> str:
    return "".join(f"{line}\n" for line in frames(envelope))

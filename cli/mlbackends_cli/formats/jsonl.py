"""JSON lines: one object for each probe of a report, or row of a list."""

from collections.abc import Iterable
from typing import Any

import msgspec

from mlbackends.model.records import Report
from mlbackends_cli.output import json_line
from mlbackends_cli.terminal import Page


def report(report: Report, page: Page) -> str:
    """Return one line per probe, each with the report's origin, so that lines can be mixed."""
    origin = {
        name: msgspec.to_builtins(getattr(report, name))
        for name in ("tool", "depth", "root", "created", "redacted")
    }
    lines = (
        {"schema": report.schema, "probe": name, **origin, **msgspec.to_builtins(probe)}
        for name, probe in report.probes.items()
    )
    return rows(lines, page)


def rows(records: Iterable[Any], _page: Page) -> str:
    """Return one line a record."""
    return "".join(f"{json_line(record)}\n" for record in records)

"""JSON lines: one object for each probe of a report, row of a list or row of a view."""

from collections.abc import Iterable
from typing import Any

import msgspec

from mlbackends.model.records import Report
from mlbackends.model.trace_views import AnyView
from mlbackends_cli.output import json_line
from mlbackends_cli.terminal import Page
from mlbackends_cli.trace.rows import table_of


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


def view(view: AnyView, page: Page) -> str:
    """Return one line a row of a view, each with the view's name."""
    columns, found = table_of(view)
    tag = {"view": view.__struct_config__.tag}
    return rows((tag | dict(zip(columns, row, strict=True)) for row in found), page)

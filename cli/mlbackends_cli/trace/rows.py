"""The views of a trace as rows of values, for programs: CSV and JSON lines."""

import csv
import io
from typing import Any

from msgspec import structs

from mlbackends.base.writable import csv_cell
from mlbackends.model import trace_views
from mlbackends_cli.output import json_line

Table = tuple[tuple[str, ...], list[tuple[Any, ...]]]
_NUMBERS = tuple(name for name in trace_views.SummaryRow.__struct_fields__ if name != "values")
_COMPARED = tuple(name for name in _NUMBERS if name != "cumulative_share")
#: Views that are a list of records: the field, and the record whose fields are the columns.
_LISTED = {
    trace_views.Findings: ("findings", trace_views.Finding),
    trace_views.Roofline: ("points", trace_views.RooflinePoint),
}


def table_of(view: trace_views.AnyView) -> Table:
    """Return the names of a view's columns, and one row for each thing that it lists."""
    if isinstance(view, trace_views.Summary):
        summed = [(*row.values, *(getattr(row, name) for name in _NUMBERS)) for row in view.rows]
        return (*view.by, *_NUMBERS), summed
    if isinstance(view, trace_views.Difference):
        # A missing side has a count of 0 and None elsewhere.
        own = ("ratio", "implementation_before", "implementation_after")
        sides = [f"{when}_{name}" for when in ("before", "after") for name in _COMPARED]
        changes = []
        for change in view.changes:
            row = [change.verdict, *change.values, *(getattr(change, name) for name in own)]
            for side in (change.before, change.after):
                row += [getattr(side, name, 0 if name == "count" else None) for name in _COMPARED]
            changes.append(tuple(row))
        return ("verdict", *view.by, *own, *sides), changes
    if isinstance(view, trace_views.DispatchView):
        refused = [
            (operation.operation, *structs.astuple(refusal))
            for operation in view.operations
            for refusal in operation.refusals
        ]
        return ("operation", *trace_views.Refusal.__struct_fields__), refused
    name, kind = _LISTED[type(view)]
    return kind.__struct_fields__, [structs.astuple(record) for record in getattr(view, name)]


def csv_text(view: trace_views.AnyView) -> str:
    """Return a view as CSV with the columns' names in the first line; lists are joined by blanks."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns, rows = table_of(view)
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            csv_cell(" ".join(map(str, cell)) if isinstance(cell, tuple) else cell) for cell in row
        )
    return text.getvalue()


def json_lines(view: trace_views.AnyView) -> str:
    """Return a JSON object for each row of a view, with the view's name."""
    columns, rows = table_of(view)
    tag = {"view": view.__struct_config__.tag}
    records = (tag | dict(zip(columns, row, strict=True)) for row in rows)
    return "".join(f"{json_line(record)}\n" for record in records)


#: The formats of rows, by the value of --format.
ROWS = {"csv": csv_text, "jsonl": json_lines}

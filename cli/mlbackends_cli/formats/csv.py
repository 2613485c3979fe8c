"""CSV: a view of a trace, with the columns' names in the first line; lists are joined by blanks."""

import csv
import io

from mlbackends.base.writable import csv_cell
from mlbackends.model.trace_views import AnyView
from mlbackends_cli.terminal import Page
from mlbackends_cli.trace.rows import table_of


def view(view: AnyView, _page: Page) -> str:
    """Return one line a row of a view."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns, rows = table_of(view)
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            csv_cell(" ".join(map(str, cell)) if isinstance(cell, tuple) else cell) for cell in row
        )
    return text.getvalue()

"""A trace that grows: its records or views, until the keyboard's interrupt."""

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlbackends.base.errors import BadInput
from mlbackends.model.trace import Record, Text, as_row
from mlbackends.tracing import filters, reader, viewing
from mlbackends.tracing.sources import Source
from mlbackends_cli import exits, formats
from mlbackends_cli.output import log, write
from mlbackends_cli.terminal import is_terminal, page
from mlbackends_cli.trace.listings import printed
from mlbackends_cli.trace.reading import raw_lines

if TYPE_CHECKING:
    from mlbackends_cli.trace.options import Request

_REDRAW_SECONDS = 0.5


def follow(files: Sequence[str], request: "Request") -> int:
    """Show a file as it grows; return the exit code."""
    if len(files) != 1:
        raise BadInput(f"--follow takes one FILE, not {len(files)}")
    if request.output not in ("", "-"):
        raise BadInput("--follow prints to standard output", "leave --output out")
    is_lines = request.names == ("records",) and request.form in ("table", "jsonl")
    if request.form != "table" and not is_lines:
        raise BadInput(
            f"--follow cannot print {request.form}",
            "take a table, or --view records --format jsonl",
        )
    where = filters.where(*request.wheres)
    screen = None if is_lines else _Screen(request)
    source = Source(files[0], follow=True, is_over=screen.look if screen else bool)
    style = page(request.color)
    try:
        for record in filters.after_first(reader.records(source.chunks()), request.skip_first):
            if screen:
                screen.add(record if where(record) else None)
            elif not where(record) or (isinstance(record, Text) and "kind" not in where.fields):
                continue
            elif request.form == "jsonl":
                write(formats.text("jsonl", "rows", (as_row(record),), style))
            else:
                write(raw_lines([str(record)]))
    except KeyboardInterrupt:
        if not screen:
            raise
        screen.draw(last=True)
        return exits.INTERRUPTED
    if screen:
        screen.draw(last=True)
    if source.damage:
        log(source.damage)
    return exits.UNKNOWN if source.damage else exits.YES


class _Screen:
    """Redraws views in place; if output is not a terminal, draws them once at the end."""

    def __init__(self, request: "Request") -> None:
        self._request = request
        views = request.views().items()
        self._collectors = {name: viewing.begin(name, **options) for name, options in views}
        self._is_stale = True
        self._drawn = 0.0
        self._shows = is_terminal(sys.stdout)

    def add(self, record: Record | None) -> None:
        """Take in a record, if there is one, and draw if it is time."""
        if record is not None:
            for collector in self._collectors.values():
                collector.add(record)
            self._is_stale = True
        self.look()

    def look(self) -> bool:
        """Draw if it is time; never ends what is followed."""
        if self._shows and self._is_stale and time.monotonic() - self._drawn >= _REDRAW_SECONDS:
            self.draw()
        return False

    def draw(self, *, last: bool = False) -> None:
        """Draw now; the last time all of it stays."""
        request = self._request
        found = {name: collector.result() for name, collector in self._collectors.items()}
        text = printed(found, request.form, page(request.color), request.most)
        if self._shows:
            try:
                rows = max(2, os.get_terminal_size(sys.stdout.fileno()).lines)
            except (ValueError, OSError):
                rows = 24
            lines = text.splitlines()
            shown = lines if last else lines[: rows - 1]
            text = "\033[H" + "".join(f"{line}\033[K\n" for line in shown) + "\033[J"
        write(text)
        self._is_stale = False
        self._drawn = time.monotonic()

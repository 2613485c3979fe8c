"""A trace that grows: its records or views, until the keyboard's interrupt."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mlbackends.model.errors import BadInput
from mlbackends.model.trace import Text, as_row
from mlbackends.tracing import filters, reader, viewing
from mlbackends.tracing.sources import Source
from mlbackends_cli import exits, formats
from mlbackends_cli.output import say, write
from mlbackends_cli.terminal import is_terminal, page
from mlbackends_cli.traces.listings import printed
from mlbackends_cli.traces.reading import raw_lines

if TYPE_CHECKING:
    from mlbackends.model.trace_views import AnyView
    from mlbackends_cli.traces.options import Request

_REDRAW_SECONDS = 0.5


def follow(files: Sequence[str], request: "Request") -> int:
    """Show a file as it grows; return the exit code."""
    if len(files) != 1:
        raise BadInput(f"--follow takes one FILE, not {len(files)}")
    if request.output not in ("", "-"):
        raise BadInput("--follow prints to standard output", "leave --output out")
    if request.names == ("records",) and request.form in ("table", "jsonl"):
        return _follow_records(files[0], request)
    if request.form != "table":
        raise BadInput(
            f"--follow cannot print {request.form}",
            "take a table, or --view records --format jsonl",
        )
    return _follow_views(files[0], request)


def _follow_records(file: str, request: "Request") -> int:
    where = filters.where(*request.wheres)
    wants_text = "kind" in where.fields
    source = Source(file, follow=True)
    style = page(request.color)
    for record in filters.after_first(reader.records(source.chunks()), request.skip_first):
        if not where(record) or (isinstance(record, Text) and not wants_text):
            continue
        if request.form == "jsonl":
            write(formats.text("jsonl", "rows", (as_row(record),), style))
        else:
            write(raw_lines([str(record)]))
    return _ending(source)


def _follow_views(file: str, request: "Request") -> int:
    where = filters.where(*request.wheres)
    collectors = {name: viewing.begin(name, **options) for name, options in request.views().items()}
    screen = _Screen(request, lambda: {name: each.result() for name, each in collectors.items()})
    source = Source(file, follow=True, is_over=screen.look)
    try:
        for record in filters.after_first(reader.records(source.chunks()), request.skip_first):
            if where(record):
                for each in collectors.values():
                    each.add(record)
                screen.is_stale = True
            screen.look()
    except KeyboardInterrupt:
        screen.draw(last=True)
        return exits.INTERRUPTED
    screen.draw(last=True)
    return _ending(source)


def _ending(source: Source) -> int:
    if source.damage:
        say(source.damage)
    return exits.UNKNOWN if source.damage else exits.YES


class _Screen:
    """Draws views over what it drew before; where output is no terminal, only the last time."""

    def __init__(self, request: "Request", made: "Callable[[], dict[str, AnyView]]") -> None:
        self.is_stale = True
        self._request = request
        self._made = made
        self._drawn = 0.0
        self._shows = is_terminal(sys.stdout)

    def look(self) -> bool:
        """Draw if it is time; never ends what is followed."""
        if self._shows and self.is_stale and time.monotonic() - self._drawn >= _REDRAW_SECONDS:
            self.draw()
        return False

    def draw(self, *, last: bool = False) -> None:
        """Draw now; the last time all of it stays."""
        request = self._request
        text = printed(self._made(), request.form, page(request.color), request.most)
        if self._shows:
            try:
                rows = max(2, os.get_terminal_size(sys.stdout.fileno()).lines)
            except (ValueError, OSError):
                rows = 24
            lines = text.splitlines()
            shown = lines if last else lines[: rows - 1]
            text = "\033[H" + "".join(f"{line}\033[K\n" for line in shown) + "\033[J"
        write(text)
        self.is_stale = False
        self._drawn = time.monotonic()

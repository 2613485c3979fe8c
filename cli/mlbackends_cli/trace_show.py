"""What `backends trace show` prints: views, every record, one page, or unreadable lines."""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from mlbackends.model.errors import BadInput
from mlbackends.model.trace import Malformed
from mlbackends.tracing import exporting, filters
from mlbackends_cli import exits
from mlbackends_cli.output import write
from mlbackends_cli.plain import cleaned
from mlbackends_cli.terminal import Page, is_terminal, page
from mlbackends_cli.trace_fitting import Fitting
from mlbackends_cli.trace_reading import Logs, chosen, tell_problems, views
from mlbackends_cli.trace_run import say, this_machine

if TYPE_CHECKING:
    from mlbackends.model.trace_views import AnyView
    from mlbackends.tracing.filters import Where
    from mlbackends.tracing.sources import Source

RECORDS = "records"
OF_RECORDS = ("jsonl", "csv", "parquet", "perfetto")
"""Formats that hold every record, unless a view is named."""
_ONLY_RECORDS = ("parquet", "perfetto")
_OF_LINES = frozenset({RECORDS, "findings", "dispatch"})
"""What also tells of lines that are no calls."""
_TOP = 20
_REDRAW_SECONDS = 0.5


class Asked(NamedTuple):
    """What the options ask for. top: None is what suits the format."""

    views: tuple[str, ...]
    form: str
    group_by: str
    of: str
    wheres: tuple[str, ...]
    top: int | None
    skip_first: int
    this_machine: bool
    output: str
    color: str

    @property
    def names(self) -> tuple[str, ...]:
        """The views, by default what suits the format."""
        if self.views:
            return tuple(dict.fromkeys(self.views))
        names_view = self.group_by or self.of != "work"
        return (RECORDS,) if self.form in OF_RECORDS and not names_view else ("summary",)

    @property
    def most(self) -> int:
        """So many rows; 0 is all."""
        if self.top is not None:
            return self.top
        return _TOP if self.form in ("table", "markdown") else 0

    def page(self) -> Page:
        """Describe what the output can show."""
        return page(self.color, to_file=self.output not in ("", "-"))


def show(files: Sequence[str], asked: Asked) -> int:
    """Print what is asked for; return the exit code."""
    fitting = _fitting(asked)
    where = fitting.where
    _check(asked)
    with closing(Logs(files, shows_progress=not _streams(asked))) as logs:
        if asked.form == "html":
            write(_html(logs, asked, where), asked.output)
        elif asked.names == (RECORDS,):
            _write_records(logs, asked, where)
        else:
            from mlbackends_cli.trace_pages import printed

            made = views(logs, wanted(asked), where, asked.skip_first, by(asked))
            told = logs.lines if _OF_LINES.intersection(asked.names) else logs.readable
            is_empty = not told or not fitting.anything
            if not is_empty or asked.form not in ("table", "markdown"):  # the end says it better
                write(printed(made, asked.form, asked.page(), asked.most), asked.output)
    code = ending(logs)
    if logs.readable and not fitting.anything:
        say(fitting.said())
        return code or exits.NO
    return code


def _streams(asked: Asked) -> bool:
    """Tell whether lines come out while files are read: on a terminal, now or behind a pager."""
    return asked.names == (RECORDS,) and asked.output in ("", "-") and not _is_file(sys.stdout)


def _is_file(stream: object) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False


def _fitting(asked: Asked) -> Fitting:
    """Return the filter that is asked for, which knows afterwards whether anything fitted."""
    of_calls = asked.form != "html" and not _OF_LINES.intersection(asked.names)
    return Fitting(
        filters.where(*asked.wheres),
        asked.skip_first,
        calls_only=of_calls,
        executed_only=bool(of_calls and asked.skip_first and asked.of == "work"),
    )


def ending(logs: Logs) -> int:
    """Say what was wrong with the files, and return the exit code."""
    tell_problems(logs, say)
    if logs.damage:
        return exits.UNKNOWN
    if logs.ended and not logs.readable:
        where = ", ".join(map(_named, logs.names))
        if logs.lines:
            say(f"no line in {where} can be read as one of MKL or oneDNN")
        else:
            say(f"there is no line of MKL or oneDNN in {where}")
        return exits.NO
    return exits.YES


def _named(name: str) -> str:
    return "standard input" if name == "-" else name


def by(asked: Asked) -> tuple[str, ...]:
    """Return the fields to group by; () is the view's own choice."""
    return filters.grouping(asked.group_by) if asked.group_by else ()


def wanted(asked: Asked) -> dict[str, dict[str, Any]]:
    """Return the views with their options."""
    # A table is cut where it is printed, so that several views are cut alike.
    options: dict[str, dict[str, Any]] = {
        "summary": {"top": asked.most, "of": asked.of} | ({"by": by(asked)} if by(asked) else {}),
        "repro": {"top": asked.most},
        "roofline": {"top": asked.most},
        "findings": {"machine": this_machine()} if asked.this_machine else {},
    }
    return {name: options.get(name, {}) for name in asked.names}


def _check(asked: Asked) -> None:
    """Refuse options that would be left unheeded."""
    if asked.form in _ONLY_RECORDS and asked.names != (RECORDS,):
        raise BadInput(
            f"{asked.form} holds every record and no view of them",
            "leave --view and --group-by out, or take --format csv",
        )
    if asked.form == "html" and (asked.views or asked.group_by or asked.of != "work"):
        raise BadInput("the HTML page holds all views", "leave --view, --group-by and --of out")
    if RECORDS in asked.names and len(asked.names) > 1:
        raise BadInput("records cannot stand beside views", "ask for them alone")
    if (asked.group_by or asked.of != "work") and "summary" not in asked.names:
        raise BadInput("--group-by and --of are for the summary", "--view summary")
    if asked.form == "csv" and len(asked.names) > 1:
        raise BadInput("a CSV file holds one table: one --view", "take --format json for several")
    if asked.names == (RECORDS,) and asked.form in ("json", "markdown"):
        raise BadInput(f"records are not written as {asked.form}", "take --format jsonl or csv")


# ---- every record --------------------------------------------------------------------------


def _write_records(logs: Logs, asked: Asked, where: "Where") -> None:
    records = chosen(logs, where, asked.skip_first)
    if asked.top:
        from itertools import islice

        records = islice(records, asked.top)
    if asked.form == "table":
        write(_lines((str(record) for record in records), asked.output), asked.output)
        return
    if asked.form == "parquet" and asked.output in ("", "-") and is_terminal(sys.stdout):
        raise BadInput("Parquet is no text for a terminal", "--output trace.parquet")
    exporting.export(records, asked.output or "-", asked.form)


def _lines(raws: Iterable[str], output: str = "") -> str | bytes:
    """Return lines fit for a terminal; for a file or a pipe, byte for byte as they were."""
    if output in ("", "-") and is_terminal(sys.stdout):
        return "".join(map(_line, raws))
    return b"".join(
        (raw if raw.endswith("\n") else raw + "\n").encode("utf-8", "surrogateescape")
        for raw in raws
    )


def _line(raw: str) -> str:
    return cleaned(raw.rstrip("\r\n")) + "\n"


def list_malformed(files: Sequence[str], output: str) -> int:
    """Print each line that could not be read, with its place and the reason."""
    with closing(Logs(files)) as logs:
        told = [
            f"{_named(name)}:{record.line_number}: {record.reason}\n  {_line(record.raw)}"
            for name, record in logs.records_with_names()
            if isinstance(record, Malformed)
        ]
    write("".join(told) or "every line of a library could be read\n", output)
    tell_problems(logs, say, hint=False)
    return exits.UNKNOWN if logs.damage else exits.YES


# ---- the page ------------------------------------------------------------------------------


def _html(logs: Logs, asked: Asked, where: "Where") -> str:
    from mlbackends import __version__
    from mlbackends.tracing.filters import after_first
    from mlbackends_cli.web.trace_page import Contents, page

    contents = Contents(this_machine()) if asked.this_machine else Contents()
    for record in after_first(logs.records(), asked.skip_first):
        if where(record):
            contents.add(record)
    title = ", ".join(os.path.basename(_named(name)) for name in logs.names)
    created = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return page(contents.result(), cleaned(title), tool=f"backends {__version__}", created=created)


# ---- a file that grows ---------------------------------------------------------------------


def follow(files: Sequence[str], asked: Asked) -> int:
    """Show a file as it grows, until the keyboard's interrupt; then once more as it is."""
    where = filters.where(*asked.wheres)
    _check(asked)
    if len(files) != 1:
        raise BadInput(f"--follow takes one FILE, not {len(files)}")
    if asked.output not in ("", "-"):
        raise BadInput("--follow prints to standard output", "leave --output out")
    if asked.names == (RECORDS,) and asked.form in ("table", "jsonl"):
        return _follow_records(files[0], asked, where)
    if asked.form != "table":
        raise BadInput(
            f"--follow cannot print {asked.form}", "take a table, or --view records --format jsonl"
        )
    return _follow_views(files[0], asked, where)


def _follow_records(file: str, asked: Asked, where: "Where") -> int:
    from mlbackends.model.trace import Text, as_row
    from mlbackends.tracing import reader
    from mlbackends.tracing.sources import Source
    from mlbackends_cli.trace_rows import as_json

    wants_text = "kind" in where.fields
    source = Source(file, follow=True)
    for record in filters.after_first(reader.records(source.chunks()), asked.skip_first):
        if (wants_text or not isinstance(record, Text)) and where(record):
            write(as_json(as_row(record)) if asked.form == "jsonl" else _lines([str(record)]))
    return _followed(source)


def _follow_views(file: str, asked: Asked, where: "Where") -> int:
    from mlbackends.tracing import reader, viewing
    from mlbackends.tracing.sources import Source

    collectors = {name: viewing.begin(name, **options) for name, options in wanted(asked).items()}
    screen = _Screen(asked, lambda: {name: each.result() for name, each in collectors.items()})
    source = Source(file, follow=True, is_over=screen.look)
    try:
        for record in filters.after_first(reader.records(source.chunks()), asked.skip_first):
            if where(record):
                for each in collectors.values():
                    each.add(record)
                screen.is_stale = True
            screen.look()
    except KeyboardInterrupt:
        screen.draw(last=True)
        return exits.INTERRUPTED
    screen.draw(last=True)
    return _followed(source)


def _followed(source: "Source") -> int:
    if source.damage:
        say(source.damage)
    return exits.UNKNOWN if source.damage else exits.YES


class _Screen:
    """Draws views over what it drew before; where output is no terminal, only the last time."""

    def __init__(self, asked: Asked, made: "Callable[[], dict[str, AnyView]]") -> None:
        self.is_stale = True
        self._asked = asked
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
        from mlbackends_cli.trace_pages import printed

        asked = self._asked
        text = printed(self._made(), asked.form, asked.page(), asked.most)
        if self._shows:
            rows = _rows()
            lines = text.splitlines()
            shown = lines if last else lines[: rows - 1]
            text = "\033[H" + "".join(f"{line}\033[K\n" for line in shown) + "\033[J"
        write(text)
        self.is_stale = False
        self._drawn = time.monotonic()


def _rows() -> int:
    try:
        return max(2, os.get_terminal_size(sys.stdout.fileno()).lines)
    except (ValueError, OSError):
        return 24

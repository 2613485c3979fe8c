"""Read traces: summary, findings and more, in many formats.

FILE is any log that holds lines of MKL or oneDNN, also amid other text, behind ranks' prefixes,
packed by gzip, xz or zstd, or in UTF-16; - is standard input. Lines that cannot be read are
counted and never stop it.

Exit 1 if there is no line of MKL or oneDNN or none matches the options, 3 if a file could be read
only in part.

Examples:
  backends trace show backends-trace.log
  backends trace show run.log.gz --group-by operation,shape --top 10
  backends trace show run.log --view findings --view dispatch
  backends trace show run.log --where 'isa~avx512 and duration_ns>1ms' --view records
  backends trace show run.log --format perfetto --output run.json   # open in ui.perfetto.dev
  backends trace show run.log --format html --output run.html
  ONEDNN_VERBOSE=2 python train.py | backends trace show -

Fields, for --where and --group-by:
  kind tracer source prefix clock raw key event cache operation shape dtype
  parameters implementation isa slow_path format component engine primitive
  propagation memory_descriptors attributes auxiliary problem routine
  partition partition_kind data_formats logical_tensors fpmath_mode scratchpad
  backend origin reason place level text topic version line_number process thread
  start_ns duration_ns flops bytes gflops gigabytes_per_second executed nested
  counted workspace_query, and entries of tables: arguments.m state.CNR
  facts.threading values.isa
"""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from mlbackends.base import registry
from mlbackends.base.errors import BadInput
from mlbackends.base.version import __version__
from mlbackends.model.trace import Malformed, Record, Text, as_row
from mlbackends.tracing import EXPORTS, filters, reader, viewing
from mlbackends.tracing.sources import Source
from mlbackends_cli import exits, formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, TypedPath, format_option, option
from mlbackends_cli.output import log, write
from mlbackends_cli.terminal import is_terminal, page
from mlbackends_cli.text.plain import cleaned
from mlbackends_cli.trace.capture import HELP
from mlbackends_cli.trace.listings import printed
from mlbackends_cli.trace.options import CHOSEN, Request, rows_shown
from mlbackends_cli.trace.page import Contents, trace_page
from mlbackends_cli.trace.reading import (
    Fitting,
    Logs,
    chosen,
    collect,
    fit_line,
    raw_lines,
    regular_size,
    views,
)
from mlbackends_cli.trace.rows import ROWS

if TYPE_CHECKING:
    from mlbackends.tracing.filters import Where


_VIEWS = tuple(name for name in registry.names("mlbackends.tracing.views") if name != "diff")
_RECORDS = "records"
#: Views that also use lines other than calls.
_OF_LINES = frozenset({_RECORDS, "findings", "dispatch"})


@documented()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=TypedPath())
@option("--view views", HELP["view"], one_of=[*_VIEWS, "records"], many=True)
@CHOSEN
@option("--of", HELP["of"], usual="work", one_of=["work", "creations", "partitions", "all"])
@format_option("listing", also=(*EXPORTS, "html"), about=HELP["format"])
@OUTPUT
@option("--follow", "Keep reading as the file grows, until Ctrl-C.")
@option("--list-malformed", "List only the lines that could not be read, and why.")
@option("--this-machine", HELP["this_machine"])
@COLOR
def command(
    files: tuple[str, ...],
    *,
    views: tuple[str, ...],
    follow: bool,
    list_malformed: bool,
    top: int | None,
    **options: Any,
) -> int:
    if list_malformed and follow:
        hint = "leave one of them out"
        raise BadInput("--list-malformed cannot be combined with --follow", hint)
    if list_malformed:
        with closing(Logs(files)) as logs:
            lines = [
                f"{_name(name)}:{record.line_number}: {record.reason}\n  {fit_line(record.raw)}"
                for name, record in logs.records_with_names()
                if isinstance(record, Malformed)
            ]
        write("".join(lines) or "all library lines could be read\n", options["output"])
        logs.print_problems(hint=False)
        return exits.UNKNOWN if logs.damage else exits.YES
    form = options["form"]
    names_view = options["group_by"] or options["of"] != "work"
    default = _RECORDS if form in EXPORTS and not names_view else "summary"
    names = tuple(dict.fromkeys(views)) or (default,)
    most = (top or 0) if _RECORDS in names else rows_shown(top, form)
    request = Request(names=names, most=most, **options)
    # Raise BadInput for options that would have no effect. is_page: views or groups are named
    is_page = bool(views or names_view)
    form, names = request.form, request.names
    if form in EXPORTS and form not in ROWS and names != (_RECORDS,):
        raise BadInput(
            f"{form} contains records, not views",
            "leave --view and --group-by out, or take --format csv",
        )
    if form == "html" and is_page:
        raise BadInput("the HTML page contains all views", "leave --view, --group-by and --of out")
    if _RECORDS in names and len(names) > 1:
        raise BadInput("records cannot be combined with views", "ask for them alone")
    if (request.group_by or request.of != "work") and "summary" not in names:
        raise BadInput("--group-by and --of are for the summary", "--view summary")
    if form == "csv" and len(names) > 1:
        raise BadInput("a CSV file holds one table: one --view", "take --format json for several")
    if names == (_RECORDS,) and form not in (*EXPORTS, "table"):
        raise BadInput(f"records are not written as {form}", "take --format jsonl or csv")
    if follow:
        return _follow(files, request)
    return _show(files, request)


def _show(files: Sequence[str], request: Request) -> int:
    form, output = request.form, request.output
    is_page = form == "html"
    of_lines = bool(_OF_LINES.intersection(request.names))
    of_calls = not is_page and not of_lines
    fitting = Fitting(
        filters.where(*request.wheres),
        request.skip_first,
        calls_only=of_calls,
        executed_only=bool(of_calls and request.skip_first and request.of == "work"),
    )
    # Lines that come out while files are read, on a terminal, now or behind a pager.
    streams = request.names == (_RECORDS,) and output in ("", "-")
    shows_progress = not streams or regular_size(sys.stdout) is not None
    with closing(Logs(files, shows_progress=shows_progress)) as logs:
        if is_page:
            title = cleaned(", ".join(os.path.basename(_name(name)) for name in logs.names))
            created, tool = time.strftime("%Y-%m-%d %H:%M:%S %z"), f"backends {__version__}"
            contents = Contents(title, request.machine(), tool=tool, created=created)
            collect(logs, contents.collectors, fitting.where, request.skip_first)
            contents.text_lines = logs.texts if fitting.where(Text()) else 0
            write(trace_page(contents), output)
        elif request.names == (_RECORDS,):
            _write_records(logs, request, fitting.where)
        else:
            found = views(logs, request.views(), fitting.where, request.skip_first, request.by())
            lines = logs.lines if of_lines else logs.readable
            # Of nothing, the line at the end is better than an empty table.
            if (lines and fitting.anything) or not formats.has(form, "listing"):
                write(printed(found, form, page(request.color, output), request.most), output)
    logs.print_problems()
    code = exits.UNKNOWN if logs.damage else exits.YES
    if logs.readable and not fitting.anything:
        log(fitting.message())
        return code or exits.NO
    if logs.ended and not logs.damage and not logs.readable:
        shown = ", ".join(map(_name, logs.names))
        if logs.lines:
            log(f"no line in {shown} can be read as one of MKL or oneDNN")
        else:
            log(f"no line of MKL or oneDNN in {shown}")
        return exits.NO
    return code


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _write_records(logs: "Logs", request: Request, where: "Where") -> None:
    from mlbackends.tracing import exporting

    form, output = request.form, request.output
    if form == "parquet" and output in ("", "-") and is_terminal(sys.stdout):
        raise BadInput("Parquet is binary and cannot be shown on a terminal", "--output trace.parquet")
    if form in exporting.LINES and not request.most:
        with (
            exporting.opened(output or "-") as file,
            closing(exporting.LINES[form](file)) as writer,
        ):
            collect(logs, (writer,), where, request.skip_first)
        return
    records = islice(chosen(logs, where, request.skip_first), request.most or None)
    if form == "table":
        write(raw_lines(map(str, records)), output)
        return
    exporting.export(records, output or "-", form)


_REDRAW_SECONDS = 0.5


def _follow(files: Sequence[str], request: Request) -> int:
    """Show a file as it grows, until the keyboard's interrupt; return the exit code."""
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

    def __init__(self, request: Request) -> None:
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

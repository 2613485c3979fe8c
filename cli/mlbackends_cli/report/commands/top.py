"""Watch what uses the GPUs, cores and memory, and which backend libraries each process has mapped.

Each process is shown with its CPU use (100 is one CPU), its threads and the CPUs that its affinity and
quota allow, its memory, and its libraries (BLAS, OpenMP, CUDA, cuDNN, torch and others) with the versions
that their files have. Above the processes are the machine, the limits of the container with how often its
quota stopped it, and each NVIDIA GPU.

Keys:
  q         quit
  s         sort by the next key: cpu, memory, gpu, threads, name, pid
  /         filter by PID, name, user, command or library; escape ends it
  up, down  scroll
  ?         help

Examples:
  backends top                              until you press q
  backends top --sort gpu --interval 5
  backends top --filter torch               only processes with torch in their name or libraries
  backends top --once                       one page, for example for a log
  backends top --once --format json | jq '.processes[] | select(.oversubscribed)'
"""

import re
import time
from contextlib import suppress

import click
import psutil
from msgspec.structs import replace

from mlbackends.base.errors import BadInput
from mlbackends.host.host import Host
from mlbackends.host.redaction import names_of, redacted_usage
from mlbackends.model.usage import Usage
from mlbackends.usage.sampler import SORTS, Sampler, selected
from mlbackends_cli import exits, formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, Seconds, format_option, option
from mlbackends_cli.output import log, write
from mlbackends_cli.terminal import Page, page

#: After so long the first shares of CPUs are shown.
_FIRST_SECONDS = 0.3
#: So long each sample may go on reading mapped files, while it is watched.
_MAPS_SECONDS = 0.005
#: Five processes and the lines around them have a place, however many GPUs there are.
_LEAST_ROWS = 9
_HELP = (__doc__ or "").partition("Keys:\n")[2].partition("\n\n")[0].splitlines()


@documented()
@option("--once", "Print one page, measured over --interval, and exit.")
@option("--interval SECONDS", "Time between two samples.", usual=1.0, kind=Seconds(min=0.1, max=3600))
@option("--sort", "Sort key of the processes.", usual="cpu", one_of=[*SORTS])
@option("--pid pids", "pid", kind=click.IntRange(min=1), many=True)
@option("--filter text TEXT", "filter", usual="")
@format_option(also=("table",), about="Output format of --once.")
@option("--redact/--no-redact", "top redact")
@OUTPUT
@COLOR
def command(
    once: bool,
    interval: float,
    sort: str,
    pids: tuple[int, ...],
    text: str,
    form: str,
    redact: bool | None,
    output: str,
    color: str,
) -> int:
    if not once and (form != "table" or output):
        raise BadInput("--format and --output print one sample", "add --once")
    gone = [pid for pid in sorted({*pids}) if not psutil.pid_exists(pid)]
    if gone and len(gone) == len({*pids}):
        raise BadInput("; ".join(f"there is no process {pid}" for pid in gone), "`ps -e` lists them")
    for pid in gone:
        log(f"there is no process {pid}")
    view = _View(sort, pids, text, hides=once if redact is None else redact)
    if not once:
        return view.watch(interval, color)
    with exits.cleared_up(), Sampler() as sampler:
        sampler.sample()
        time.sleep(interval)
        usage = sampler.sample()
    shown = view.chosen(usage)
    if form == "table":
        from mlbackends_cli.report.usage import whole  # rich, which JSON does not need

        write(whole(shown, page(color, output)), output)
    else:
        write(formats.text(form, "record", shown, page(color, output)), output)
    return exits.USAGE if gone else exits.YES


class _View:
    """What is shown of the samples, and how keys change that."""

    def __init__(self, sort: str, pids: tuple[int, ...], text: str, *, hides: bool) -> None:
        self.sort, self.pids, self.text = sort, pids, text
        self.names = names_of(Host()) if hides else None
        self.first = 0
        self.has_more = True
        self.is_typing = self.shows_help = False

    def chosen(self, usage: Usage) -> Usage:
        """Return what is shown of a sample."""
        usage = selected(usage, self.sort, self.pids, self.text)
        return usage if self.names is None else redacted_usage(usage, self.names)

    def watch(self, interval: float, color: str) -> int:
        """Draw samples until the user quits."""
        from mlbackends_cli.report.usage import Screen

        pause, due = min(_FIRST_SECONDS, interval), 0.0
        with (
            suppress(KeyboardInterrupt),
            exits.cleared_up(),
            Screen("`backends top --once` prints one page") as screen,
            Sampler(seconds=_MAPS_SECONDS) as sampler,
        ):
            while self.has_more:
                if time.monotonic() >= due:
                    usage = sampler.sample()
                    due, pause = time.monotonic() + pause, interval
                width, height = screen.size()
                style = replace(page(color), width=max(40, width))
                screen.draw(self.lines(self.chosen(usage), style, height))
                self.press(screen.key(due - time.monotonic()))
        return exits.YES

    def lines(self, usage: Usage, style: Page, height: int) -> list[str]:
        """Return what fills the screen."""
        from mlbackends_cli.report import usage as pages
        from mlbackends_cli.text.layout import Cell, cropped
        from mlbackends_cli.text.layout import lines as layout_lines

        if self.shows_help:
            rows = [[*map(Cell, re.split("  +", line.strip(), maxsplit=1))] for line in _HELP]
            return [*layout_lines(rows, style), "any key goes back"]
        head = pages.header(usage, style)
        if (most := max(2, height - _LEAST_ROWS)) < len(head):
            left = f"and {len(head) - most + 1} more lines, on a larger screen or by --once"
            head[most - 1 :] = [style.fitted(cropped(left, style.width))]
        room = max(1, height - len(head) - 4)
        self.first = max(0, min(self.first, len(usage.processes) - 1))
        processes = usage.processes[self.first : self.first + room]
        body = pages.table(usage, style, processes)
        body = body[: room + 1] + [""] * (room + 1 - len(body))
        shown = f"from {self.first + 1} of {usage.process_count}"
        keys = f"q quit  s sort: {self.sort}  / filter{': ' * bool(self.text)}{self.text}  ? help  {shown}"
        bottom = f"filter: {self.text}_" if self.is_typing else keys
        signs = "  ".join(pages.legend(processes, [*head, *body]))
        last = [style.fitted(cropped(line, style.width - 1)) for line in (signs, bottom)]
        return [*head, "", *body, last[0], style.styled(last[1], "reverse")]

    def press(self, key: str) -> None:
        """Change the view by a key."""
        if self.is_typing:
            self.is_typing = key not in ("\n", "escape")
            if key == "\b":
                self.text = self.text[:-1]
            elif key == "escape":
                self.text = ""
            elif len(key) == 1 and key.isprintable():
                self.text += key
        elif self.shows_help:
            self.shows_help = not key
        elif key == "s":
            names = [*SORTS]
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
        elif key == "/":
            self.is_typing, self.text = True, ""
        elif key == "escape":
            self.text = ""
        elif key in ("?", "h"):
            self.shows_help = True
        else:
            self.first += {"up": -1, "down": 1}.get(key, 0)
            self.has_more = key != "q"

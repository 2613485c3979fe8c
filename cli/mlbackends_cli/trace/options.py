"""Options of the commands that read traces."""

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mlbackends.model.trace_views import Roof
from mlbackends.tracing.fields import NAMES
from mlbackends.tracing.filters import grouping
from mlbackends.tracing.machine import UNKNOWN, this_machine
from mlbackends_cli.options import completing, option, together
from mlbackends_cli.output import log
from mlbackends_cli.trace.capture import HELP

if TYPE_CHECKING:
    from mlbackends.tracing.machine import Machine


def _joined(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> str:
    """Return the fields of all --group-by as one list."""
    del ctx, param
    if not all(value.strip(" ,") for value in values):
        raise click.BadParameter("nothing to group by; give fields such as operation,shape")
    return ",".join(values)


WHERE = option("--where wheres EXPRESSION", HELP["where"], many=True)
GROUP_BY = option(
    "--group-by FIELD,...",
    HELP["group_by"],
    many=True,
    shell_complete=completing(lambda: sorted(NAMES), in_list=True),
    callback=_joined,
)
SKIP_FIRST = option("--skip-first N", HELP["skip_first"], usual=0, kind=click.IntRange(min=0))
TOP = option("--top N", HELP["top"], kind=click.IntRange(min=0))
#: The options of both commands that read traces.
CHOSEN = together(GROUP_BY, WHERE, TOP, SKIP_FIRST)
_DEFAULT_TOP = 20


def rows_shown(top: int | None, form: str) -> int:
    """Return how many rows a format shows; 0 is all."""
    usual = _DEFAULT_TOP if form in ("table", "markdown") else 0
    return usual if top is None else top


class Request(NamedTuple):
    """What the options ask for. names: the views. most: the number of rows, 0 for all."""

    names: tuple[str, ...]
    form: str
    group_by: str
    of: str
    wheres: tuple[str, ...]
    most: int
    skip_first: int
    this_machine: bool
    output: str
    color: str

    def by(self) -> tuple[str, ...]:
        """Return the fields to group by; () is the view's own choice."""
        return grouping(self.group_by) if self.group_by else ()

    def views(self) -> dict[str, dict[str, Any]]:
        """Return the views with their options."""
        # Other tables are cut where they are printed, so that several views are cut alike.
        top = {"top": self.most}
        by = self.by()
        options: dict[str, dict[str, Any]] = {
            "summary": {**top, "of": self.of, **({"by": by} if by else {})},
        }
        if {"findings", "roofline"} & {*self.names}:
            machine = self.machine()
            options |= {"roofline": {**top, "roof": machine.roof}, "findings": {"machine": machine}}
        return {name: options.get(name, {}) for name in self.names}

    def machine(self) -> "Machine":
        """Return the machine that the trace is of, with speeds that are measured now."""
        return this_machine(measured()) if self.this_machine else UNKNOWN


# ---- the speeds of this machine, with which a trace of it is compared ---------------------------

#: Many short ones: on a busy machine some are not disturbed, and the best counts.
_CALLS, _SECONDS = 50, 1.0


@cache
def measured() -> Roof | None:
    """Return them, measured within about two seconds; None, with a word, where they cannot be."""
    from mlbackends.isolation.service import Lost  # attention is not needed to read a trace
    from mlbackends.sdpa.verify.processes import BANDWIDTH, PEAK, Plan, started

    with started(Plan()) as processes:
        try:
            flops, by, threads = _speed(processes, PEAK, "flops")
            traffic, read_by, _ = _speed(processes, BANDWIDTH, "bytes")
        except Lost as lost:
            log(f"the speeds of this machine could not be measured: {lost.reason.message}")
            return None
    return Roof(gflops=flops, gigabytes_per_second=traffic, threads=threads, by=f"{by}; {read_by}")


def _speed(processes: Any, name: str, unit: str) -> tuple[float, str, int]:
    """Return billions of a unit a second at best, how they were measured, and by how many threads."""
    details = processes.send(name, "", {"do": "prepare"})["details"]
    seconds = processes.send(name, "", {"do": "time", "seconds": _SECONDS, "calls": _CALLS})
    processes.stop()  # a pool of threads that waits would take time from the next
    rate = int(details[unit]) / min(seconds["seconds"]) / 1e9
    return rate, str(details["by"]), int(details.get("threads", 0))

"""Compare two traces: what became slower, faster, is new or gone.

Exit 1 if a call is slower than the thresholds allow, for CI; 3 if nothing could be
compared, because no call fits --where or no call is in both.

Calls are matched by tracer, operation, shape, dtype and `parameters`: the rest of what the program asked
for, such as forward or backward, the algorithm, bias, fused operations, the layouts of a reorder, a
transposed matrix, or MKL's words such as N,T. The library's own choices are not compared, so another
implementation, or another layout of a convolution, is a change of the same call. The direction follows
the operation: fwd_t (training), fwd_i (inference), bwd_d (data), bwd_w (weights). A reorder
into another block is a different call.

Versions, threads, instruction sets and MKL's branch are listed below if they differ, and so is a trace
whose times are unsteady: its ratios mean little.

Examples:
  backends trace diff before.log after.log
  backends trace diff main.log branch.log --threshold 20% --whole-threshold 5%
  backends trace diff a.log b.log --group-by operation,shape,implementation --measure total
  backends trace diff a.log b.log --format json | jq '.changes[] | select(.verdict=="slower")'
"""

from contextlib import closing
from typing import Any

import click
from msgspec.structs import replace

from mlbackends.base.errors import BadInput
from mlbackends.base.quantities import percentage
from mlbackends.model.trace import Call
from mlbackends.tracing import filters, viewing
from mlbackends_cli import exits
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import TypedPath, option, written
from mlbackends_cli.output import log, write
from mlbackends_cli.terminal import page
from mlbackends_cli.trace.capture import HELP
from mlbackends_cli.trace.listings import printed, uncompared
from mlbackends_cli.trace.options import CHOSEN, rows_shown
from mlbackends_cli.trace.reading import Logs, collect
from mlbackends_cli.trace.rows import ROWS


def _ratio(text: str) -> float:
    """Return how many times as long: 1.1 for "1.1" and "10%"."""
    found = _number(text, "neither a ratio such as 1.1 nor a share such as 10%", 1.0)
    if text.lstrip().startswith("-"):
        raise click.BadParameter(f"{text} is negative; give how much slower: 10% or 1.1")
    return found


def _number(text: str, otherwise: str, whole: float) -> float:
    """Return a number; of one with a percent sign the part, on top of the whole."""
    if (share := percentage(text)) is not None:
        return whole + share
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is {otherwise}") from None


@documented()
@click.argument("before", metavar="BEFORE", type=TypedPath())
@click.argument("after", metavar="AFTER", type=TypedPath())
@CHOSEN
@option("--measure", "What is compared.", usual="median", one_of=["median", "mean", "min", "total"])
@option("--threshold RATIO", HELP["threshold"], usual="10%", kind=_ratio)
@option(
    "--smallest-share SHARE",
    HELP["smallest_share"],
    usual="1%",
    kind=lambda text: _number(text, "neither a part such as 0.01 nor a share such as 1%", 0.0),
)
@option("--whole-threshold RATIO", "Fail also if all calls together take this much longer.", kind=_ratio)
@option("--all everything", HELP["all"])
@written("listing", also=ROWS)
def command(
    *,
    before: str,
    after: str,
    group_by: str,
    wheres: tuple[str, ...],
    skip_first: int,
    top: int | None,
    form: str,
    everything: bool,
    output: str,
    color: str,
    whole_threshold: float | None,
    **options: Any,
) -> int:
    if before == after == "-":
        raise BadInput("only one of the traces can come from standard input")
    options["whole_threshold"] = whole_threshold or 0.0
    by = filters.grouping(group_by) if group_by else ()
    if by:
        options["by"] = by
    collector: Any = viewing.begin(
        "diff", **options
    )  # an error in the options comes before the files are read
    where = filters.where(*wheres)
    # Headers, which are not calls, show which settings differ.
    shown = replace(where, test=lambda record: not isinstance(record, Call) or where(record))
    logs = (Logs([before]), Logs([after]))
    with closing(logs[0]), closing(logs[1]):
        for log_file, trace in zip(logs, (collector.before, collector), strict=True):
            collect(log_file, (trace,), shown, skip_first, by)
    found = collector.result()
    most = rows_shown(top, form)
    write(printed({"diff": found}, form, page(color, output), most, everything=everything), output)
    for log_file in logs:
        log_file.print_problems()
        if not log_file.readable:
            log(f"no line of MKL or oneDNN in {log_file.names[0]}")
    if any(log_file.damage or not log_file.readable for log_file in logs):
        return exits.UNKNOWN
    if found.failed:
        return exits.NO
    if not (why := uncompared(found)):
        return exits.YES
    limits = [f"--where {text!r}" for text in wheres]
    limits += [f"--skip-first {skip_first}"] if skip_first else []
    requested = f" (asked for {', '.join(limits)})" if limits else ""
    log(f"nothing was compared: {why}{requested}")
    return exits.UNKNOWN

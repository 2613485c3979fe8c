"""What `backends trace diff` prints: two files, compared."""

from contextlib import closing
from typing import TYPE_CHECKING, Any

from mlbackends.model.errors import BadInput
from mlbackends.tracing import filters, viewing
from mlbackends_cli import exits
from mlbackends_cli.output import write
from mlbackends_cli.terminal import page
from mlbackends_cli.trace_listings import uncompared
from mlbackends_cli.trace_pages import printed
from mlbackends_cli.trace_reading import Logs, takes_sums, tell_problems
from mlbackends_cli.trace_run import say

if TYPE_CHECKING:
    from mlbackends.model.trace_views import Difference

_TOP = 20


def diff(
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
    """Compare, print, and return 1 where something is slower than the thresholds allow."""
    if before == after == "-":
        raise BadInput("only one of the traces can come from standard input")
    options["whole_threshold"] = whole_threshold or 0.0
    by = filters.grouping(group_by) if group_by else ()
    if by:
        options["by"] = by
    viewing.begin("diff", **options)  # what is wrong with them is told before the files are read
    logs = (Logs([before]), Logs([after]))
    with closing(logs[0]), closing(logs[1]):
        found = _difference(*logs, filters.where(*wheres), skip_first, by, options)
    most = _TOP if top is None and form in ("table", "markdown") else top or 0
    style = page(color, to_file=output not in ("", "-"))
    write(printed({"diff": found}, form, style, most, everything=everything), output)
    for each in logs:
        tell_problems(each, say)
        if not each.readable:
            say(f"there is no line of MKL or oneDNN in {each.names[0]}")
    if any(each.damage or not each.readable for each in logs):
        return exits.UNKNOWN
    if found.failed:
        return exits.NO
    why = uncompared(found)
    if why:
        say(f"nothing was compared: {why}{_asked(wheres, skip_first)}")
        return exits.UNKNOWN
    return exits.YES


def _asked(wheres: tuple[str, ...], skip_first: int) -> str:
    """Name the options that may have left nothing."""
    named = [f"--where {text!r}" for text in wheres]
    if skip_first:
        named.append(f"--skip-first {skip_first}")
    return f" (asked for {', '.join(named)})" if named else ""


def _difference(
    before: Logs,
    after: Logs,
    where: filters.Where,
    skip_first: int,
    by: tuple[str, ...],
    options: dict[str, Any],
) -> "Difference":
    if takes_sums({}, where, skip_first, by):
        return viewing.difference_of_aggregates(
            before.aggregate(), after.aggregate(), where, **options
        )
    left, right = (
        filter(where, filters.after_first(each.records(), skip_first)) for each in (before, after)
    )
    return viewing.difference(left, right, **options)

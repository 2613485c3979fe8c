"""Remove old runs from a folder of kept reports.

DIR is a folder that `backends fleet run --keep` filled. A run stays if one of the options keeps it, as with
restic and borg; the newest run always stays. Reports of removed runs, and fingerprints that no other run has,
are removed with them, and the file shrinks.

Examples:
  backends fleet prune reports/ --keep-last 100
  backends fleet prune reports/ --keep-within 90d
  backends fleet prune reports/ --keep-last 10 --keep-within 1y --dry-run
"""

import time

import click
from ClusterShell.RangeSet import RangeSet

from mlbackends.base.errors import BadInput, counted, shown
from mlbackends.base.patterns import pattern
from mlbackends.fleet.sources import opened_kept
from mlbackends_cli.fleet.sources import HELP
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import TypedPath, option
from mlbackends_cli.output import write

_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400, "m": 31 * 86400, "y": 366 * 86400}
_DURATION = pattern(r"(?:\d{1,6}[hdwmy])+")
_PART = pattern(r"(\d+)([hdwmy])")


@documented()
@click.argument("folder", metavar="DIR", type=TypedPath())
@option("--keep-last N", "Keep the newest N runs.", kind=click.IntRange(min=1))
@option("--keep-within DURATION", HELP["keep_within"])
@option("--dry-run", "Only show what would be removed.")
def command(folder: str, keep_last: int | None, keep_within: str | None, dry_run: bool) -> None:
    if keep_last is None and keep_within is None:
        raise BadInput("no rule says what to keep", "name --keep-last N, --keep-within DURATION or both")
    since = time.time() - _seconds(keep_within) if keep_within else float("inf")
    with opened_kept(folder, writes=not dry_run) as kept:
        runs = kept.runs()
        newest = {run.number for run in runs[-(keep_last or 1) :]}
        old = [run.number for run in runs if run.number not in newest and run.started < since]
        reports = 0 if dry_run or not old else kept.prune(old)
    done = "would be removed" if dry_run else f"with {counted(reports, 'report')} removed"
    which = f" ({RangeSet.fromlist(map(str, old))})" if old else ""
    write(f"{counted(len(old), 'run')}{which} {done}; {counted(len(runs) - len(old), 'run')} kept")


def _seconds(text: str) -> float:
    """Return a duration such as 90d or 1y6m in seconds; a month has 31 days, a year 366. Raises BadInput."""
    if not _DURATION.fullmatch(text):
        hint = "write it as in 36h, 90d, 12w, 6m or 1y6m"
        raise BadInput(f"--keep-within {shown(text)} is not a duration", hint)
    return float(sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))

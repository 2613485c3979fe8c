"""Find known problems on a machine, with the reason they matter and how to fix them.

FILE is a report that `backends info --format json` wrote; FILE or DIR may also be what `backends snapshot`
wrote; - is the live machine. Each finding has a stable code; `backends explain CODE` describes it.
What could not be determined is "not checked", never passed.

Examples:
  backends doctor                            what is wrong here
  backends doctor --fail-on warning          stricter, for CI
  backends doctor report.json                of a saved report
  backends doctor --pid 4242                 what is wrong with a running process
  backends doctor --ignore cpu-governor --format junit --output doctor.xml
  backends doctor --exit-code slurm --format line   why to drain this node, in one line
  backends explain openmp-two-runtimes       what one code means
"""

import re
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from mlbackends.audit.catalogue import load
from mlbackends.audit.reports import name_of
from mlbackends.audit.runner import examine
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import PID, read_report
from mlbackends_cli.report.judgement import HAZARDS, judging

if TYPE_CHECKING:
    from mlbackends.model.audit import Outcome
    from mlbackends.model.records import Report

#: Words of fixes that take effect when a process starts: variables, and files that it loads.
_AT_START = re.compile(r"\b(export|unset|(re|un)?install|LD_[A-Z_]+)\b", re.IGNORECASE)


@documented()
@click.argument("subject", metavar="[FILE|DIR|-]", default="-")
@HAZARDS
@PID
@judging
def command(
    subject: str, only: tuple[str, ...], ignore: tuple[str, ...], pid: int | None, **look: Any
) -> "tuple[Outcome, Report]":
    for code in (*only, *ignore):
        load(code)  # a wrong code is an error before the survey
    report = read_report(subject, pid=pid, **look)
    name = f"process {pid}" if pid else name_of(subject)
    outcome = examine(report, only=only, ignored=ignore, subject=name)
    if pid:
        fixes = []
        for check in outcome.checks:  # with the fix for a running process, whose PID replaces the shell's
            hint = check.hint
            if _AT_START.search(f"{check.command} {hint}"):
                hint = f"{hint.rstrip('.')}; then start process {pid} anew".removeprefix("; ")
            fixes.append(replace(check, hint=hint, command=check.command.replace("$$", str(pid))))
        outcome = replace(outcome, checks=tuple(fixes))
    return outcome, report

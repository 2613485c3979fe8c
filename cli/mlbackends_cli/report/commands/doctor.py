"""Find known problems on a machine, with the reason they matter and how to fix them.

FILE is a report that `backends info --format json` wrote; FILE or DIR may also be what `backends snapshot`
wrote; - is the live machine. Each finding has a stable code; `backends explain CODE` describes it.
What could not be determined is "not checked", never passed.

With --from, FILE is what people paste into issues: logs, tracebacks, and the output of collect_env, pip list,
conda list, nvidia-smi, rocminfo, lscpu and others, also several of them together. The most likely cause comes
first, with the line that it rests on, then at most two others; --all has the rest.

Examples:
  backends doctor                            what is wrong here
  backends doctor --fail-on warning          stricter, for CI
  backends doctor report.json                of a saved report
  backends doctor --pid 4242                 what is wrong with a running process
  backends doctor --from issue.md            the cause in a pasted traceback, log or list of packages
  backends doctor --ignore cpu-governor --format junit --output doctor.xml
  backends doctor --exit-code slurm --format line   why to drain this node, in one line
  backends explain openmp-two-runtimes       what one code means
"""

import re
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from mlbackends.audit.catalogue import load
from mlbackends.audit.messages import diagnose
from mlbackends.audit.paste import read
from mlbackends.audit.reports import LIVE, name_of
from mlbackends.audit.runner import examine
from mlbackends.base.errors import BadInput
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import PID, TypedPath, option, read_report
from mlbackends_cli.report.judgement import HAZARDS, judging

if TYPE_CHECKING:
    from mlbackends.model.audit import Outcome
    from mlbackends.model.records import Report

#: Words of fixes that take effect when a process starts: variables, and files that it loads.
_AT_START = re.compile(r"\b(export|unset|(re|un)?install|LD_[A-Z_]+)\b", re.IGNORECASE)


@documented()
@click.argument("subject", metavar="[FILE|DIR|-]", default="-")
@option("--from pasted FILE|-", "Read a pasted text instead; - is standard input.", kind=TypedPath())
@HAZARDS
@PID
@judging
def command(
    subject: str,
    pasted: str | None,
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    pid: int | None,
    **look: Any,
) -> "tuple[Outcome, Report]":
    for code in (*only, *ignore):
        load(code)  # a wrong code is an error before the survey
    if pasted is not None:
        if subject != LIVE or pid or look["python"]:
            message = "--from reads a text; it cannot be combined with FILE, DIR, --python or --pid"
            raise BadInput(message, "leave one of them out")
        paste = read(pasted)
        details = click.get_current_context().params["details"]
        return diagnose(paste, only=only, ignored=ignore, details=details), paste.report
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

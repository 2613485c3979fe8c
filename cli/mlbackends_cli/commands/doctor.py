"""Find what is known to go wrong on a machine, why it hurts, and how to mend it."""

from typing import TYPE_CHECKING

import click

from mlbackends_cli.judging import finish, judging, report_to_judge
from mlbackends_cli.options import DEPTH, PYTHON, REDACT, TIMEOUT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _complete(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    del ctx, param
    from click.shell_completion import CompletionItem

    from mlbackends.audit import hazard

    return [CompletionItem(code) for code in hazard.codes() if code.startswith(incomplete)]


@click.command(
    epilog="""\b
Examples:
  backends doctor                            what is wrong here
  backends doctor --fail-on warning          stricter, for CI
  backends doctor report.json                of a saved report
  backends doctor --ignore cpu-governor --format junit --output doctor.xml
  backends explain openmp-two-runtimes       what one code means
"""
)
@click.argument("subject", metavar="[FILE|DIR|-]", default="-")
@click.option(
    "--only", metavar="CODE", multiple=True, shell_complete=_complete, help="Look for this alone."
)
@click.option(
    "--ignore", metavar="CODE", multiple=True, shell_complete=_complete, help="Leave this out."
)
@PYTHON
@DEPTH
@TIMEOUT
@REDACT
@judging
def command(
    subject: str,
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    python: str,
    depth: str,
    timeout: float,
    redact: bool,
    form: str,
    fail_on: str,
    strict: bool,
    details: bool,
    output: str,
    color: str,
) -> int:
    """Find what is known to go wrong on a machine, why it hurts, and how to mend it.

    FILE is a report that `backends info --format json` or `backends snapshot` wrote, DIR a recorded
    machine, - the live one. Each finding has a code that stays; `backends explain CODE` prints its
    page. What could not be read is "not checked", never passed.
    """
    from mlbackends.audit.hazard import load
    from mlbackends.audit.reports import name_of
    from mlbackends.audit.runner import examine

    for each in (*only, *ignore):
        load(each)  # a wrong code is told before anything is asked
    report = report_to_judge(subject, python=python, depth=depth, timeout=timeout, redact=redact)
    outcome = examine(report, only=only, ignored=ignore, subject=name_of(subject))
    return finish(
        outcome,
        form=form,
        fail_on=fail_on,
        strict=strict,
        details=details,
        output=output,
        color=color,
    )

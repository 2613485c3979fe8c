"""What the commands that judge have in common: how the outcome is written, and which exit code it means."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mlbackends.model import registry
from mlbackends.model.audit import Outcome, Severity, Status
from mlbackends_cli import exits
from mlbackends_cli.options import COLOR, OUTPUT

if TYPE_CHECKING:
    from mlbackends.model.records import Report
    from mlbackends_cli.terminal import Page

FORMATS = "mlbackends_cli.outcomes"
NEVER = "never"

_Command = TypeVar("_Command", bound=Callable[..., Any])


def judging(command: _Command) -> _Command:
    """Add the options of every command that judges: --format, --fail-on, --strict, --output, --color."""
    options = (
        click.option(
            "--format",
            "form",
            type=click.Choice(registry.names(FORMATS)),
            default="table",
            show_default=True,
            help="How to write the outcome. junit, sarif, github, gitlab and tap are for CI,"
            " prometheus for node_exporter's textfile collector.",
        ),
        click.option(
            "--fail-on",
            type=click.Choice([*(each.value for each in Severity), NEVER]),
            default=Severity.ERROR.value,
            show_default=True,
            help="Exit 1 where something of this severity or worse failed.",
        ),
        click.option("--strict", is_flag=True, help="Exit 3 where a check could not be told."),
        click.option(
            "--all", "details", is_flag=True, help="Show what passed too, and the evidence."
        ),
        OUTPUT,
        COLOR,
    )
    for option in reversed(options):
        command = option(command)
    return command


def report_to_judge(
    subject: str, *, python: str, depth: str, timeout: float, redact: bool
) -> "Report":
    """Return the report of a saved one, a recorded machine or, by "-", the live one. Raises BadInput."""
    from mlbackends.audit.reports import LIVE, report_of
    from mlbackends.model.errors import BadInput
    from mlbackends.model.records import Presence
    from mlbackends_cli.terminal import ProgressLine

    if python and subject != LIVE:
        raise BadInput("--python looks at the live machine; it goes with no FILE or DIR")
    with ProgressLine() as progress:
        return report_of(
            subject,
            python=python,
            depth=Presence(depth),
            timeout=timeout,
            redact=redact,
            progress=progress,
        )


def finish(
    outcome: Outcome,
    *,
    form: str,
    fail_on: str,
    strict: bool,
    details: bool,
    output: str,
    color: str,
) -> int:
    """Write the outcome, and return the exit code that it means."""
    from mlbackends_cli.terminal import page

    write_outcome(
        outcome, form, output, page(color, to_file=output not in ("", "-"), details=details)
    )
    return code(outcome, fail_on=fail_on, strict=strict)


def write_outcome(outcome: Outcome, form: str, output: str, page: "Page") -> None:
    """Write the outcome in one of FORMATS, and what the format also leaves elsewhere, as GitHub's summary."""
    from mlbackends_cli.output import write

    renderer = registry.load(FORMATS, form)
    write(renderer.outcome(outcome, page), output)
    if hasattr(renderer, "beside"):
        renderer.beside(outcome)


def code(outcome: Outcome, *, fail_on: str, strict: bool) -> int:
    """Return the exit code that an outcome means."""
    if fail_on != NEVER and outcome.failed(Severity(fail_on)):
        return exits.NO
    if strict and outcome.with_status(Status.UNKNOWN):
        return exits.UNKNOWN
    return exits.YES

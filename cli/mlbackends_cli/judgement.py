"""What `audit` and `doctor` share: their options, how the outcome is written, and the exit code."""

from collections.abc import Callable

import click

from mlbackends.model import registry
from mlbackends.model.audit import Outcome, Severity, Status
from mlbackends_cli import exits, formats
from mlbackends_cli.options import (
    COLOR,
    DEPTH,
    OUTPUT,
    PYTHON,
    REDACT,
    TIMEOUT,
    Command,
    format_option,
    together,
)
from mlbackends_cli.output import write
from mlbackends_cli.terminal import Page, page

NEVER = "never"


def fail_on_option(default: str) -> Callable[[Command], Command]:
    """Return the option that says which findings end the command with 1."""
    return click.option(
        "--fail-on",
        type=click.Choice([*(each.value for each in Severity), NEVER]),
        default=default,
        show_default=True,
        help="Exit 1 where something of this severity or worse failed.",
    )


judging = together(
    PYTHON,
    DEPTH,
    TIMEOUT,
    REDACT,
    format_option(
        "outcome",
        about="How to write the outcome: for people, for programs, or for what CI and monitoring read.",
    ),
    fail_on_option(Severity.ERROR.value),
    click.option("--strict", is_flag=True, help="Exit 3 where something could not be checked."),
    click.option("--all", "details", is_flag=True, help="Show what passed too, and the evidence."),
    OUTPUT,
    COLOR,
)
"""The options of every command that judges."""


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
    write_outcome(outcome, form, output, page(color, output, details=details))
    return code(outcome, fail_on=fail_on, strict=strict)


def write_outcome(outcome: Outcome, form: str, output: str, page: Page) -> None:
    """Write the outcome, and let the format publish it elsewhere, as in GitHub's summary."""
    write(formats.text(form, "outcome", outcome, page), output)
    module = registry.load("mlbackends_cli.formats", form)
    if hasattr(module, "publish"):
        module.publish(outcome)


def code(outcome: Outcome, *, fail_on: str, strict: bool) -> int:
    """Return the exit code that an outcome means."""
    if fail_on != NEVER and outcome.failed(Severity(fail_on)):
        return exits.NO
    if strict and outcome.with_status(Status.UNKNOWN):
        return exits.UNKNOWN
    return exits.YES

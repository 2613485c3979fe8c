"""Hold a machine to a policy: what somebody expects of it, written in TOML."""

from typing import TYPE_CHECKING

import click

from mlbackends_cli import exits
from mlbackends_cli.judging import finish, judging, report_to_judge
from mlbackends_cli.options import DEPTH, PYTHON, REDACT, TIMEOUT

if TYPE_CHECKING:
    from mlbackends.model.audit import Outcome

CODES = ("plain", "nagios")


@click.command(
    epilog="""\b
Examples:
  backends audit --init --output policy.toml   write what this machine is as a policy
  backends audit --policy policy.toml          hold this machine to it
  backends audit report.json --policy gpu.toml --policy ci.toml --format junit
  backends audit --policy gpu.toml --exit-code nagios
"""
)
@click.argument("subject", metavar="[FILE|DIR|-]", default="-")
@click.option(
    "--policy",
    "policies",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Hold the machine to this policy. Given again, to each of them.",
)
@click.option("--init", "write_policy", is_flag=True, help="Write a policy that the machine fits.")
@click.option(
    "--exit-code",
    "codes",
    type=click.Choice(CODES),
    default="plain",
    show_default=True,
    help="nagios: 0 well, 1 a warning failed, 2 an error failed, 3 something could not be told or"
    " read; --fail-on and --strict then do not matter.",
)
@PYTHON
@DEPTH
@TIMEOUT
@REDACT
@judging
def command(
    subject: str,
    policies: tuple[str, ...],
    write_policy: bool,
    codes: str,
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
    """Hold a machine to a policy: what somebody expects of it, written in TOML.

    FILE is a report that `backends info --format json` or `backends snapshot` wrote, DIR a recorded
    machine, - the live one. A policy has rules such as "cpu.capability >= AVX2" or
    "nvidia.devices count == 8"; backends-policy(7) has the language, --init a beginning. What could
    not be read is "not checked", never passed. Nothing in a policy is ever run.
    """
    from mlbackends.model.errors import MlBackendsError

    try:
        _check_call(policies, write_policy=write_policy)
        if write_policy:
            from mlbackends.audit.policy.draft import written
            from mlbackends_cli.output import write

            report = report_to_judge(
                subject, python=python, depth=depth, timeout=timeout, redact=True
            )
            write(written(report), output)
            return exits.YES
        outcome = _outcome(subject, policies, python, depth, timeout, redact=redact)
        code = finish(
            outcome,
            form=form,
            fail_on=fail_on,
            strict=strict,
            details=details,
            output=output,
            color=color,
        )
    except MlBackendsError as error:
        if codes == "nagios":
            error.exit_code = NAGIOS_UNKNOWN
        raise
    return code if codes == "plain" else nagios(outcome)


def _check_call(policies: tuple[str, ...], *, write_policy: bool) -> None:
    from mlbackends.model.errors import BadInput

    if write_policy and policies:
        raise BadInput("--init writes a policy; it goes with no --policy")
    if not write_policy and not policies:
        raise BadInput(
            "no policy: name one with --policy FILE",
            "`backends audit --init --output policy.toml` writes one from this machine",
        )


def _outcome(
    subject: str,
    policies: tuple[str, ...],
    python: str,
    depth: str,
    timeout: float,
    *,
    redact: bool,
) -> "Outcome":
    import datetime as dt

    from mlbackends.audit.policy.evaluation import audit
    from mlbackends.audit.policy.rules import read
    from mlbackends.audit.reports import name_of

    read_policies = [read(path) for path in policies]  # an error in one is told before asking
    report = report_to_judge(subject, python=python, depth=depth, timeout=timeout, redact=redact)
    today = dt.datetime.now().astimezone().date()
    return audit(read_policies, report, today, name_of(subject))


NAGIOS_UNKNOWN = 3


def nagios(outcome: "Outcome") -> int:
    """Return the exit code that Nagios, Icinga and node health checks read of an outcome."""
    from mlbackends.model.audit import Severity, Status

    if outcome.failed(Severity.ERROR):
        return 2
    if outcome.failed(Severity.WARNING):
        return 1
    return NAGIOS_UNKNOWN if outcome.with_status(Status.UNKNOWN) else 0

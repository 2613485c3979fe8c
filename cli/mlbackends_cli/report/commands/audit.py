"""Hold a machine to a policy: what somebody expects of it, written in TOML.

FILE is a report that `backends info --format json` wrote; FILE or DIR may be what `backends snapshot`
wrote, and - is the live machine. A policy has rules such as "cpu.capability >= AVX2" or
"nvidia.devices count == 8"; backends-policy(7) has the language, --init a beginning. What could
not be read is "not checked", never passed. Nothing in a policy is ever run.

Examples:
  backends audit --init --output policy.toml   write what this machine is as a policy
  backends audit --policy policy.toml          hold this machine to it
  backends audit report.json --policy gpu.toml --policy ci.toml --format junit
  backends audit --policy gpu.toml --exit-code nagios
"""

import datetime as dt
from typing import Any

import click

from mlbackends.audit.policy.draft import written as policy_of
from mlbackends.audit.policy.evaluation import audit
from mlbackends.audit.policy.rules import read
from mlbackends.audit.reports import name_of
from mlbackends.base.errors import BadInput
from mlbackends.model.audit import Outcome
from mlbackends.model.records import Report
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import TypedPath, read_report
from mlbackends_cli.report.judgement import judging


@documented()
@click.argument("subject", metavar="[FILE|DIR|-]", default="-")
@click.option(
    "--policy",
    "policies",
    metavar="FILE",
    multiple=True,
    type=TypedPath(),
    help="Hold the machine to this policy. Given again, to each of them.",
)
@click.option("--init", "write_policy", is_flag=True, help="Write a policy that the machine fits.")
@judging
def command(
    subject: str,
    policies: tuple[str, ...],
    write_policy: bool,
    python: str,
    depth: str,
    timeout: float,
    redact: bool,
) -> tuple[Outcome, Report] | str:

    look: dict[str, Any] = {"python": python, "depth": depth, "timeout": timeout}
    if write_policy and policies:
        raise BadInput("--init writes a policy; it goes with no --policy")
    if write_policy:
        return policy_of(read_report(subject, **look))
    if not policies:
        raise BadInput(
            "no policy: name one with --policy FILE",
            "`backends audit --init --output policy.toml` writes one from this machine",
        )
    read_policies = [read(path) for path in policies]  # an error in one comes before the survey
    report = read_report(subject, redact=redact, **look)
    today = dt.datetime.now().astimezone().date()
    return audit(read_policies, report, today, name_of(subject)), report

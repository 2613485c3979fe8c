"""Check a machine against a policy: your requirements, written in TOML.

FILE is a report that `backends info --format json` wrote; FILE or DIR may also be what `backends snapshot`
wrote; - is the live machine. A policy has rules such as "cpu.capability >= AVX2" or
"nvidia.devices count == 8". backends-policy(7) describes the language, and --init writes a first policy.
What could not be determined is "not checked", never passed. A policy cannot run anything.

Examples:
  backends audit --init --output policy.toml   write this machine's properties as a policy
  backends audit --policy policy.toml          check this machine against it
  backends audit report.json --policy gpu.toml --policy ci.toml --format junit
  backends audit --require 'cpu.capability >= AVX2' --require 'limits.effective_cpus >= 8' --format junit
  backends audit --policy gpu.toml --exit-code nagios
"""

import datetime as dt
from typing import Any

import click

from mlbackends.audit.policy.draft import written as policy_of
from mlbackends.audit.policy.evaluation import audit
from mlbackends.audit.policy.rules import read, required
from mlbackends.audit.reports import name_of
from mlbackends.base.errors import BadInput
from mlbackends.model.audit import Outcome
from mlbackends.model.records import Report
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import option, read_report
from mlbackends_cli.report.judgement import POLICIES, judging


@documented()
@click.argument("subject", metavar="[FILE|DIR|-]", default="-")
@POLICIES
@option("--require requirements ASSERTION", "require", many=True)
@option("--init write_policy", "Write a policy that this machine satisfies.")
@judging
def command(
    subject: str,
    policies: tuple[str, ...],
    requirements: tuple[str, ...],
    write_policy: bool,
    **look: Any,
) -> tuple[Outcome, Report] | str:

    if write_policy and (policies or requirements):
        raise BadInput("--init writes a policy; it goes with no --policy or --require")
    if write_policy:
        return policy_of(read_report(subject, **{**look, "redact": True}))
    if not (policies or requirements):
        raise BadInput(
            "no policy: name one with --policy FILE, or say what is needed with --require",
            "`backends audit --init --output policy.toml` writes one from this machine",
        )
    read_policies = [read(path) for path in policies]  # an error in one comes before the survey
    read_policies += [required(requirements)] if requirements else []
    report = read_report(subject, **look)
    today = dt.datetime.now().astimezone().date()
    return audit(read_policies, report, today, name_of(subject)), report

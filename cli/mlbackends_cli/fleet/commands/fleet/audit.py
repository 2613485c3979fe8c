"""Check the nodes of a fleet against a policy, and show on which of them a rule fails.

The policy is checked once for each distinct configuration; backends-policy(7) describes the language. A node
without a report could not be checked: --strict then exits 3. SOURCE is what `backends fleet summarize` reads.

Examples:
  backends fleet audit reports/ --policy gpu.toml
  backends fleet audit reports/ --policy gpu.toml --expect 'node[001-064]' --strict
  backends fleet audit reports/ --policy gpu.toml --format sarif --output fleet.sarif
"""

import datetime as dt
from typing import Any

from mlbackends.audit.policy.evaluation import audit
from mlbackends.audit.policy.rules import read
from mlbackends.base.errors import BadInput
from mlbackends.fleet.judging import Judge, fleet_outcome, places_of
from mlbackends_cli.fleet.sources import OUTCOME, collected, reading
from mlbackends_cli.lazy import documented
from mlbackends_cli.report.judgement import POLICIES, finish


@documented()
@reading
@POLICIES
@OUTCOME
def command(
    sources: tuple[str, ...], expect: str, policies: tuple[str, ...], **written: Any
) -> int:

    if not policies:
        raise BadInput("no policy: name one with --policy FILE")
    rules = [read(path) for path in policies]
    today = dt.datetime.now().astimezone().date()
    judge = Judge(lambda report: audit(rules, report, today), places_of(rules))
    collection = collected(sources, expect, judge.visit)
    return finish(fleet_outcome(judge, collection), **written)

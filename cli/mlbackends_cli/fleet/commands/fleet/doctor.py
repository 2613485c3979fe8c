"""Find known problems on the nodes of a fleet, and the nodes that have them.

Each hazard is looked for once per distinct configuration, and is reported with its number of nodes. A node
without a report could not be checked: --strict then exits 3. `backends explain CODE` describes a
finding. SOURCE is what `backends fleet summarize` reads.

Examples:
  backends fleet doctor reports/
  backends fleet doctor reports/ --only nvidia-fabric-manager
  backends fleet doctor reports/ --expect 'node[001-064]' --strict --format junit --output fleet.xml
"""

from typing import Any

from mlbackends.audit.catalogue import load
from mlbackends.audit.runner import examine
from mlbackends.fleet.judging import Judge, fleet_outcome
from mlbackends_cli.fleet.sources import OUTCOME, collected, reading
from mlbackends_cli.lazy import documented
from mlbackends_cli.report.judgement import HAZARDS, finish


@documented()
@reading
@HAZARDS
@OUTCOME
def command(
    sources: tuple[str, ...],
    expect: str,
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    **written: Any,
) -> int:
    for each in (*only, *ignore):
        load(each)  # a wrong code is an error before anything is read
    judge = Judge(lambda report: examine(report, only=only, ignored=ignore))
    collection = collected(sources, expect, judge.visit)
    return finish(fleet_outcome(judge, collection), **written)

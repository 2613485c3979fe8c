"""Show which nodes differ, how, and which did not report.

Each source is a file, a folder of files, or - for standard input, which is the default. It may hold
frames, reports and envelopes as JSON, on one line or many, with or without the labels of srun -l, pdsh,
clush, mpirun --tag-output, kubectl --prefix and Ansible; recorded machines; and what this command wrote as
JSON, so that parts of a fleet can be combined.

Nodes of one kind, by default those with the same CPU and GPU, are compared with what most of them have. Facts
that split the nodes in the same way are one deviation, the smallest first. Volatile and identifying values
are not compared, and metrics may differ by 1 %. The transport's label takes precedence over the name in a
report. A second report of a node is counted, and the first one is used.

With --by-group each group is compared by itself, and one in which all nodes agree is one line. A node of
several groups is compared in each of them; nodes of none are compared with each other.

If one reader is too slow, the workers of a running Dask or Ray cluster can read the files in parts: they
need this version of mlbackends, and the files at the same paths.

Examples:
  srun -N8 --ntasks-per-node=1 backends info --format frame | backends fleet summarize --expect 8
  backends fleet summarize reports/ --expect 'node[001-064]' --fail-on any
  backends fleet summarize reports/ --baseline good.json --fail-on drift
  backends fleet summarize reports/ --by-group @rack --format prometheus --output fleet.prom
  backends fleet summarize reports/ --by-group partition --baseline gpu=gpu.json --baseline cpu=cpu.json
  backends fleet summarize rack1.json rack2.json --format html --output fleet.html
  backends fleet summarize reports/ --hazards --plot fleet.svg
  backends fleet summarize /shared/reports/ --dask tcp://head:8786
"""

from typing import Any

from mlbackends.audit.reports import LIVE
from mlbackends.base.errors import BadInput
from mlbackends_cli.fleet.commands.fleet import CLUSTER, loaded, named
from mlbackends_cli.fleet.sources import SUMMARY, Summary, collected, read_by, reading
from mlbackends_cli.lazy import documented


@documented()
@reading
@CLUSTER
@SUMMARY
def command(
    sources: tuple[str, ...],
    expect: str,
    ray: str | None,
    dask: str | None,
    engine: str | None,
    **options: Any,
) -> int:
    summary = Summary(**options)
    if LIVE in summary.baselines and LIVE in (sources or (LIVE,)):
        raise BadInput("- is standard input here; the baseline needs a file")
    if not (found := named(engine, ray=ray, dask=dask)):
        return summary.of(lambda visit: collected(sources, expect, visit))
    ((name, where),) = found
    workers = loaded(name)
    if not hasattr(workers, "each"):
        raise BadInput(f"the engine {name} has no workers that read files")
    if not sources:
        raise BadInput("workers cannot read standard input", "name files that they have too")
    return summary.of(lambda _: read_by(workers.each, where, sources, expect, looks=summary.hazards))

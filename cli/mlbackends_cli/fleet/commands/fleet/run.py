"""Run a command on every node, and compare what the nodes print.

It uses your existing engine and never starts one: --hosts is ssh by ClusterShell, --slurm is srun in the
current allocation, --mpi is the mpirun on the PATH, --ray and --dask are running clusters. Other packages can
add engines, which --engine names.

COMMAND is a command of backends that has --format json, without that option; by default info, whose reports
are compared as backends fleet summarize does. On each node it runs in a process group that is killed at
--timeout, so that a node that hangs or crashes does not affect the others. The nodes need backends at the
path that it has here, or at --program.

Examples:
  backends fleet run --hosts 'node[001-064]'
  backends fleet run --slurm --fail-on any
  backends fleet run --ray
  backends fleet run --dask tcp://head:8786 --timeout 30
  backends fleet run --hosts @compute --timeout 600 -- sdpa bench --shape 1,8,4096,64
"""

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import click

from mlbackends.base.errors import BadInput
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.engines import Job
from mlbackends.fleet.nodesets import expanded, folded
from mlbackends.model.fleet import Envelope
from mlbackends_cli import exits
from mlbackends_cli.fleet.commands.fleet import (
    CLUSTER,
    COMMAND,
    as_json,
    loaded,
    named,
    root_command,
)
from mlbackends_cli.fleet.sources import EXPECT, HELP, SUMMARY, Summary, expected_nodes
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import option, timeout_option
from mlbackends_cli.terminal import ProgressLine

#: From this number of late nodes on, progress names them.
_MOST_LATE = 8


@documented(context_settings={"allow_interspersed_args": False})
@option("--hosts NODESET", "Run by ssh; with another engine, only on these nodes.", usual="")
@option("--slurm", "Run by srun, on each node of this allocation.")
@option("--mpi", "Run by mpirun, on each node that it knows.")
@CLUSTER
@timeout_option(60.0, "Time limit of the command on a node before it is killed.", most=86400)
@option("--fanout N", HELP["fanout"], usual=64, kind=click.IntRange(min=1, max=65536))
@option("--program PATH", "Path of backends on the nodes.  [default: the path of this one]", usual="")
@EXPECT
@SUMMARY
@COMMAND
def command(
    hosts: str,
    slurm: bool,
    mpi: bool,
    ray: str | None,
    dask: str | None,
    engine: str | None,
    timeout: float,
    fanout: int,
    program: str,
    expect: str,
    command_line: tuple[str, ...],
    **options: Any,
) -> int:
    as_json(command_line, root_command())
    flags = {"slurm": "" if slurm else None, "mpi": "" if mpi else None}
    found = named(engine, **flags, ray=ray, dask=dask) or ([("hosts", "")] if hosts else [])
    if not found:
        hint = "--hosts NODESET, --slurm, --mpi, --ray, --dask ADDRESS or --engine NAME"
        raise BadInput("name an engine that runs the command on the nodes", hint)
    ((name, where),) = found
    envelope = ("fleet", "envelope", "--timeout", f"{timeout:g}", "--", *command_line)
    beside = os.path.join(os.path.dirname(sys.executable), "backends")
    itself = beside if os.path.isfile(beside) else shutil.which("backends") or "backends"
    job = Job(
        command=(program or itself, *envelope),
        seconds=timeout,
        where=where,
        nodes=expanded(hosts),
        fanout=fanout,
    )
    runner = loaded(name)
    expected = expected_nodes(expect) or getattr(runner, "expected", lambda job: job.nodes)(job)
    total = len(expected) if isinstance(expected, tuple) else expected or 0

    def gather(visit: Callable[[str, Envelope], None]) -> Collection:
        collection = Collection(expected or None)
        known = f" of {total:,}" if total else ""
        waiting = {*expected} if isinstance(expected, tuple) else set()

        def sentence(done: int, _total: int, which: str) -> str:
            return f"{done:,}{known} nodes" + (f", {which}" if which else "")

        with exits.cleared_up(), ProgressLine(sentence) as progress:
            progress(0, total, "")

            def take(envelope: Envelope) -> None:
                before = len(collection.nodes)
                node = collection.add(envelope)
                if len(collection.nodes) > before:
                    visit(node, envelope)
                waiting.discard(node)
                is_near = 0 < len(waiting) <= _MOST_LATE
                which = f"waiting for {folded(waiting)}" if is_near else f"the last {node}"
                progress(len(collection.nodes) + len(collection.silent), total, which)

            runner.run(job, take)
        return collection

    return Summary(**options).of(gather)

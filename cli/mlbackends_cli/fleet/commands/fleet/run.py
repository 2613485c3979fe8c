"""Run a command on every node, and compare what the nodes print.

It uses your existing engine and never starts one: --hosts is ssh by ClusterShell, --slurm is srun in the
current allocation, --mpi is the mpirun on the PATH, --ray and --dask are running clusters. Other packages can
add engines, which --engine names.

COMMAND is a command of backends that has --format json, without that option; by default info, whose reports
are compared as backends fleet summarize does. On each node it runs in a process group that is killed at
--timeout, so that a node that hangs or crashes does not affect the others. The nodes need backends at the
path that it has here, or at --program.

With --push the nodes need only Python: each gets a bundle on standard input, checks its SHA-256, runs it
from a private temporary folder, and removes the folder. `backends fleet bundle` writes such a FILE; without
one, the bundle has what is installed here, for nodes with this version of Python and this kind of processor.
info and other commands with --python then inspect the Python of the node, and --program names it.

--keep DIR stores each raw report in a folder as it arrives, with its time and exit code. If the run is
interrupted, what came is summarised and stays there; --resume DIR asks the nodes that have no report in the
last run of the folder. `backends fleet summarize DIR`, doctor, audit, facts, diff and history read it.

Examples:
  backends fleet run --hosts 'node[001-064]'
  backends fleet run --hosts @compute --keep reports/
  backends fleet run --resume reports/
  backends fleet run --hosts @compute --push
  backends fleet run --slurm --fail-on any
  backends fleet run --ray
  backends fleet run --dask tcp://head:8786 --timeout 30
  backends fleet run --hosts @compute -- bench --quick
  backends fleet run --hosts @compute --timeout 600 -- sdpa bench --shape 1,8,4096,64
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from mlbackends.base.errors import BadInput, MlBackendsError, counted
from mlbackends.fleet import bundle
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.engines import Job, Take
from mlbackends.fleet.nodesets import expanded, folded
from mlbackends.fleet.sources import opened_kept
from mlbackends.fleet.unpacker import PYTHON
from mlbackends.model.fleet import Envelope
from mlbackends.model.history import Asked
from mlbackends_cli import exits
from mlbackends_cli.fleet.commands.fleet import (
    CLUSTER,
    COMMAND,
    as_json,
    loaded,
    named,
    of_python,
    root_command,
)
from mlbackends_cli.fleet.sources import EXPECT, HELP, SUMMARY, Summary, expected_nodes
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import TypedPath, option, timeout_option, typed
from mlbackends_cli.output import log
from mlbackends_cli.terminal import ProgressLine

if TYPE_CHECKING:
    from mlbackends.fleet.store import Keeper

#: From this number of late nodes on, progress names them.
_MOST_LATE = 8
#: The options that --resume takes from the run, unless they are typed again.
_STORED = ("hosts", "program", "timeout", "fanout", "push")


@documented(context_settings={"allow_interspersed_args": False})
@option("--hosts NODESET", "Run by ssh; with another engine, only on these nodes.", usual="")
@option("--slurm", "Run by srun, on each node of this allocation.")
@option("--mpi", "Run by mpirun, on each node that it knows.")
@CLUSTER
@timeout_option(60.0, "Time limit of the command on a node before it is killed.", most=86400)
@option("--fanout N", HELP["fanout"], usual=64, kind=click.IntRange(min=1, max=65536))
@option("--program PATH", HELP["program"], usual="")
@option("--push [FILE]", HELP["push"], is_flag=False, flag_value="", kind=TypedPath())
@option("--keep DIR", HELP["keep"], usual="", kind=TypedPath())
@option("--resume DIR", HELP["resume"], usual="", kind=TypedPath())
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
    push: str | None,
    keep: str,
    resume: str,
    expect: str,
    command_line: tuple[str, ...],
    **options: Any,
) -> int:
    if keep and resume:
        raise BadInput("--resume keeps reports in the folder that it names; remove --keep")
    flags = {"slurm": "" if slurm else None, "mpi": "" if mpi else None}
    found = named(engine, **flags, ray=ray, dask=dask)
    name, where = found[0] if found else ("hosts" if hosts and not resume else "", "")
    asked = Asked(name, where, command_line, hosts, program, timeout, fanout, push)
    with ExitStack() as stack:
        folder, earlier = None, None
        if resume:
            folder = stack.enter_context(opened_kept(resume, writes=True))
            earlier = folder.last_of_ours()
            asked = _again(asked, earlier.asked, is_typed=bool(command_line))
        if not asked.engine:
            hint = "--hosts NODESET, --slurm, --mpi, --ray, --dask ADDRESS or --engine NAME"
            raise BadInput("name an engine that runs the command on the nodes", hint)
        as_json(asked.words, root_command())
        runner, job = loaded(asked.engine), _job_of(asked)
        expected = expected_nodes(expect) or (
            earlier.expected if earlier else getattr(runner, "expected", lambda job: job.nodes)(job)
        )
        if earlier:
            rest = expanded(hosts) or expected
            if not isinstance(rest, tuple):
                hint = "name them with --hosts or --expect"
                raise BadInput(f"the last run of {resume} does not record which nodes it asked", hint)
            if isinstance(expected, tuple):
                expected = (*dict.fromkeys((*expected, *rest)),)
            job = replace(job, nodes=rest)
        if keep:
            folder = stack.enter_context(opened_kept(keep, writes=True, creates=True))
        work = _Work(runner.run, job, expected)
        if folder is not None:
            from mlbackends.fleet.store import Keeper  # with SQLite

            work.earlier = folder.envelopes(earlier.number) if earlier else None
            work.keeper = Keeper(folder, asked, expected, earlier.number if earlier else None)
        code = Summary(**options).of(work.gather)
        return work.ended(keep or resume) or code


def _again(asked: Asked, stored: Asked, *, is_typed: bool) -> Asked:
    """Return what an earlier run asked, with the options that were typed now. Raises BadInput."""
    if is_typed and asked.command != stored.command:
        raise BadInput(f"the last run asked for `{stored.command}`", "--keep begins another run")
    names = [name for name in typed() if name in _STORED]
    names += ["engine", "where"] if asked.engine else []
    return replace(stored, **{name: getattr(asked, name) for name in names})


def _job_of(asked: Asked) -> Job:
    envelope = ("fleet", "envelope", "--timeout", f"{asked.timeout:g}", "--")
    if asked.push is not None:
        given = bundle.opened(asked.push) if asked.push else bundle.installed()
        words = of_python(asked.words, root_command(), PYTHON)
        command = bundle.pushing(given, (*envelope, *words), asked.program)
    else:
        beside = os.path.join(os.path.dirname(sys.executable), "backends")
        itself = beside if os.path.isfile(beside) else shutil.which("backends") or "backends"
        given, command = b"", (asked.program or itself, *envelope, *asked.words)
    return Job(
        command=command,
        seconds=asked.timeout,
        where=asked.where,
        nodes=expanded(asked.hosts),
        fanout=asked.fanout,
        given=given,
        given_file=os.path.abspath(asked.push) if asked.push else "",
    )


class _Work(Struct):
    """Asks the nodes, collects what they answer, and keeps it.

    earlier: the reports of the run that is resumed, of which the job has all nodes; None for a new run.
    stop: what ended it early. reported: the number of nodes with a report.
    """

    run: Callable[[Job, Take], None]
    job: Job
    expected: tuple[str, ...] | int | None
    earlier: Iterable[Envelope] | None = None
    keeper: "Keeper | None" = None
    stop: KeyboardInterrupt | MlBackendsError | None = None
    reported: int = 0

    def gather(self, visit: Callable[[str, Envelope], None]) -> Collection:
        """Return what came, also where the run was interrupted or its engine failed after some had come."""
        collection, came = Collection(self.expected or None), 0
        waiting = {*self.expected} if isinstance(self.expected, tuple) else set()
        total = self.expected if isinstance(self.expected, int) else len(waiting)

        def added(envelope: Envelope) -> tuple[str, bool]:
            before = len(collection.nodes)
            node = collection.add(envelope)
            if is_new := len(collection.nodes) > before:
                visit(node, envelope)
            return node, is_new

        if self.earlier is not None:
            for envelope in self.earlier:
                added(envelope)
            left = tuple(node for node in self.job.nodes if node not in collection.nodes)
            self.job, waiting = replace(self.job, nodes=left), {*left}
            for node in left:
                collection.silent.pop(node, None)
        known = f" of {total:,}" if total else ""

        def sentence(done: int, _total: int, which: str) -> str:
            return f"{done:,}{known} nodes" + (f", {which}" if which else "")

        with exits.cleared_up(), ProgressLine(sentence) as progress:
            progress(0, total, "")

            def take(envelope: Envelope) -> None:
                nonlocal came
                node, is_new = added(envelope)
                came += 1
                if self.keeper is not None:
                    self.keeper.add(node, envelope, collection, is_new=is_new)
                waiting.discard(node)
                is_near = 0 < len(waiting) <= _MOST_LATE
                which = f"waiting for {folded(waiting)}" if is_near else f"the last {node}"
                progress(len(collection.nodes) + len(collection.silent), total, which)

            try:
                if self.earlier is None or self.job.nodes:
                    self.run(self.job, take)
            except (KeyboardInterrupt, MlBackendsError) as stop:
                if not came:
                    raise
                self.stop = stop
            self.reported = len(collection.nodes)
            if self.keeper is not None and self.stop is None:
                self.keeper.finish(collection)
        return collection

    def ended(self, folder: str) -> int:
        """Report how the run ended and what was kept; return the exit code, 0 for that of the summary."""
        code = exits.YES
        if self.stop is not None:
            is_interrupt = isinstance(self.stop, KeyboardInterrupt)
            code = exits.INTERRUPTED if is_interrupt else exits.UNKNOWN
            code = int(self.stop.args[0]) if isinstance(self.stop, exits.Terminated) else code
            hint = f"backends fleet run --resume {shlex.quote(folder)} asks the others" if folder else ""
            why = "interrupted" if is_interrupt else str(self.stop)
            log(f"{why}; {counted(self.reported, 'node')} had reported", hint)
        if self.keeper is not None and (failure := self.keeper.failure):
            log(f"{folder} cannot be written: {failure}; {counted(self.keeper.lost, 'report')} not kept")
            return code or exits.USAGE
        return code

"""What runs a command once on every node: one file an engine, named as `backends fleet run` names it.

An engine is attached to, never started. It defines

    def run(job: Job, take: Callable[[Envelope], None]) -> None: ...

which calls `take` with an envelope for each node that has something to say, as it comes, and returns when all
have or when the job's limit is over. It may define `expected(job)`, the names of the nodes that it will run
on, so that one that is lost is named, and

    def each(
        where: str, function: Callable[[Any], Any], items: Sequence[Any]
    ) -> Iterator[tuple[int, Any]]: ...

which has workers with mlbackends call a function for each item, and yields the item's place and what came
of it, as they are done: so a fleet is read in parts. All raise BadInput or MlBackendsError where the engine
is not there.
Other distributions add engines by the entry points `mlbackends.engines`.
"""

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mlbackends.base.errors import BadInput, MlBackendsError
from mlbackends.fleet import labels
from mlbackends.fleet.frames import MARK
from mlbackends.fleet.payload import run
from mlbackends.fleet.reader import Reader, lines_of
from mlbackends.host.command import kill_group, start_group
from mlbackends.model.fleet import Envelope, Status

Take = Callable[[Envelope], None]
#: How much longer than the command itself what starts and watches it on a node may take.
GRACE_SECONDS = 10.0
_ENDING_SECONDS = 5.0


class Job(Struct, frozen=True):
    """What is to be run. command: on each node; it prints frames, and ends by itself at the limit.

    seconds: the limit of the command. where: the engine's address, "" for the usual one. nodes: the names of
    the nodes, () for all that the engine has. fanout: how many connections at once.
    """

    command: tuple[str, ...]
    seconds: float
    where: str = ""
    nodes: tuple[str, ...] = ()
    fanout: int = 64

    @property
    def node_seconds(self) -> float:
        """The limit of all that runs on a node."""
        return self.seconds + GRACE_SECONDS


def record_of(command: Sequence[str], seconds: float) -> Envelope:
    """Run a command of ours that prints JSON, and return its record in an envelope of this node."""
    node, status, error, output = run(command, seconds)
    text = output.strip()
    if status != "timeout" and text[:1] == "{":
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as failure:
            error = error or f"it printed no JSON: {failure}"
        else:
            return Envelope(node=node, report=Raw(text.encode()))
    error = error or f"it printed no record but: {text[:100]!r}"
    return Envelope(
        node=node, status=Status.TIMEOUT if status == "timeout" else Status.ERROR, error=error
    )


def envelopes_of(output: bytes, node: str, failure: Envelope | None = None) -> list[Envelope]:
    """Return the envelopes in what one node printed; where there is none, what failed."""
    reader = Reader()
    found = [replace(each, node=node) for each in reader.read(output.split(b"\n"), node)]
    if found:
        return found
    if reader.garbled:
        error = f"of what it printed came: {', '.join(reader.garbled)}"
        return [failure or Envelope(node=node, status=Status.GARBLED, error=error)]
    text = output.strip().rpartition(b"\n")[2][:100].decode(errors="replace")
    error = f"it printed no report but: {text}" if text else "it printed no report"
    return [failure or Envelope(node=node, status=Status.ERROR, error=error)]


def from_worker(result: tuple[str, str, str, str], taken: set[str], address: str) -> list[Envelope]:
    """Return the envelopes of what `payload.run` returned. taken: the names of nodes that came before."""
    node, status, error, output = result
    if node in taken:
        node = f"{node}@{address}"
    taken.add(node)
    failure = Envelope(node=node, status=Status(status), error=error) if status != "ok" else None
    return envelopes_of(output.encode(), node, failure)


def run_launcher(
    launcher: Sequence[str],
    job: Job,
    take: Take,
    nodes: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program that starts the job's command on every node and prints what each prints: srun, mpirun.

    Frames are taken from its output, and what it says itself of nodes from its errors. Where the job's limit
    is over it is stopped, and `nodes` of which nothing has come are late. Raises BadInput where it is not
    here, and MlBackendsError where no node has said anything.
    """
    command = [*launcher, *limited(job)]
    with tempfile.TemporaryFile() as errors:
        try:
            process = start_group(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(environment or {})},
            )
        except OSError as error:
            raise BadInput(f"{command[0]} cannot be started: {error.strerror}") from None
        assert process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.terminate()  # srun and mpirun then end what they have started elsewhere
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_SECONDS)
            kill_group(process)

        timer = threading.Timer(job.node_seconds + GRACE_SECONDS, stop)
        timer.daemon = True
        timer.start()
        seen = set()

        def lines() -> Iterator[bytes]:
            assert process.stdout is not None
            yield from (line for line in lines_of(cast("BinaryIO", process.stdout)) if MARK in line)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            errors.seek(0)
            yield from (
                line for line in lines_of(cast("BinaryIO", errors)) if labels.failures_in(line)
            )

        try:
            for envelope in Reader().read(lines()):
                seen.add(envelope.node)
                take(envelope)
        finally:
            timer.cancel()
            kill_group(process)
            process.stdout.close()
        if not seen:
            errors.seek(0)
            text = " ".join(errors.read(2000).decode(errors="replace").split())[-300:]
            why = f"it was stopped after {job.node_seconds:g} s" if late.is_set() else text
            raise MlBackendsError(f"{command[0]} brought no report: {why or 'it printed nothing'}")
        for node in nodes if late.is_set() else ():
            if node not in seen:
                take(Envelope(node=node, status=Status.TIMEOUT, error="it did not answer in time"))


def limited(job: Job) -> list[str]:
    """Return the job's command as a node is to run it: ended by coreutils, where it cannot end itself."""
    return ["timeout", "-k", "5", f"{job.node_seconds:g}", *job.command]

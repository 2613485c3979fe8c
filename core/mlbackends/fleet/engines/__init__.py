"""Engines run a command once on every node: one file per engine, named as in `backends fleet run`.

An engine must be running already; we never start one. It defines

    def run(job: Job, take: Callable[[Envelope], None]) -> None: ...

which calls `take` with each node's envelope as it arrives, and returns when all have arrived or the job's
time is over. It may define `expected(job)`, the names of the nodes that it will run on, so that lost nodes
are named, and

    def each(
        where: str, function: Callable[[Any], Any], items: Sequence[Any]
    ) -> Iterator[tuple[int, Any]]: ...

which lets workers that have mlbackends call a function for each item, and yields the item's place and result
as they finish: this is how a fleet is read in parts. All raise BadInput or MlBackendsError where the engine
cannot be reached.
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

from mlbackends.base.errors import BadInput, MlBackendsError, why_not
from mlbackends.fleet import labels
from mlbackends.fleet.frames import MARK
from mlbackends.fleet.payload import run
from mlbackends.fleet.reader import Reader, lines_of, with_failure
from mlbackends.host.command import kill_group, start_group
from mlbackends.model.fleet import Envelope, Status

Take = Callable[[Envelope], None]
#: The further time for a bundle to arrive on a node, and to be unpacked.
PUSH_SECONDS = 50.0
#: The time that starting and watching the command on a node may take in addition to the command.
GRACE_SECONDS = 10.0
_ENDING_SECONDS = 5.0
_MOST_ERRORS = 1 << 20


class NoReport(MlBackendsError):
    """A launcher ended, or was stopped, before any node reported. text: its errors."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class Job(Struct, frozen=True):
    """A command to run on each node. command: it prints frames, and ends by itself at the limit.

    seconds: the limit of the command. where: the engine's address, "" for the default. nodes: the names of
    the nodes, () for all of the engine's. fanout: the number of simultaneous connections. given: what each
    command gets on its standard input, a bundle. given_file: the path of the bundle here, "" for none.
    """

    command: tuple[str, ...]
    seconds: float
    where: str = ""
    nodes: tuple[str, ...] = ()
    fanout: int = 64
    given: bytes = b""
    given_file: str = ""

    @property
    def node_seconds(self) -> float:
        """The limit of all that runs on a node."""
        return self.seconds + GRACE_SECONDS + (PUSH_SECONDS if self.given else 0.0)


def record_of(command: Sequence[str], seconds: float) -> Envelope:
    """Run a command of ours that prints JSON, and return its record in an envelope of this node."""
    node, status, error, output = run(command, seconds)
    text = output.strip()
    if status != "timeout" and text[:1] == "{":
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as failure:
            error = error or f"it printed no JSON: {why_not(failure)}"
        else:
            # 1 is the answer "no" of a check, which the record has.
            suspect = "" if error.startswith("exit code 1") and error[11:12] in ("", ":") else error
            number = error.partition(":")[0].removeprefix("exit code ") if error else "0"
            code = int(number) if number.isdecimal() else None
            return Envelope(node=node, report=Raw(text.encode()), error=suspect, exit_code=code)
    error = error or f"it printed no record but: {text[:100]!r}"
    return Envelope(node=node, status=Status.TIMEOUT if status == "timeout" else Status.ERROR, error=error)


def envelopes_of(output: bytes, node: str, failure: Envelope | None = None) -> list[Envelope]:
    """Return the envelopes in a node's output, or one with an error: `failure`, if the engine has one."""
    reader = Reader()
    found = [replace(envelope, node=node) for envelope in reader.read(output.split(b"\n"), node)]
    if found and failure is not None:  # a whole report is suspect then
        return [
            replace(envelope, error=failure.error)
            if envelope.status is Status.OK
            else with_failure(envelope, failure)
            for envelope in found
        ]
    if found:
        return found
    if reader.garbled:
        error = f"of what it printed came: {', '.join(reader.garbled)}"
        return [with_failure(Envelope(node=node, status=Status.GARBLED, error=error), failure)]
    text = output.strip().rpartition(b"\n")[2][:100].decode(errors="replace")
    error = f"it printed no report but: {text}" if text else "it printed no report"
    return [failure or Envelope(node=node, status=Status.ERROR, error=error)]


def from_worker(result: tuple[str, str, str, str], taken: set[str], address: str) -> list[Envelope]:
    """Return the envelopes of a result of `payload.run`. taken: the names of earlier nodes."""
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
    given: bytes = b"",
) -> None:
    """Run srun or mpirun, which starts the job's command on every node and prints the output of all.

    Its output is read for frames, and its errors for failures of nodes. At the end of the job's time it is
    stopped, and `nodes` from which nothing came have timed out. given: its standard input. Raises BadInput
    where it cannot be started, and MlBackendsError where no node reported.
    """
    command = [*launcher, *limited(job)]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        try:
            process = start_group(
                command,
                {**os.environ, **(environment or {})},
                inherits=True,
                stdin=file,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            raise BadInput(f"{command[0]} cannot be started: {error.strerror}") from None
        assert process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            end()

        def end() -> None:
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
            yield from (line for line in lines_of(cast("BinaryIO", errors)) if labels.failures_in(line))

        try:
            for envelope in Reader().read(lines()):
                seen.add(envelope.node)
                take(envelope)
        except BaseException:  # interrupted
            end()
            raise
        finally:
            timer.cancel()
            kill_group(process)
            process.stdout.close()
        if not seen:
            errors.seek(0)
            text = errors.read(_MOST_ERRORS).decode(errors="replace")
            why = " ".join(text.split())[-300:]
            why = f"it was stopped after {job.node_seconds:g} s" if late.is_set() else why
            raise NoReport(f"{command[0]} returned no report: {why or 'it printed nothing'}", text)
        for node in nodes if late.is_set() else ():
            if node not in seen:
                take(Envelope(node=node, status=Status.TIMEOUT, error="it did not answer in time"))


def limited(job: Job) -> list[str]:
    """Return the job's command under coreutils' timeout, for a node where it cannot end itself."""
    return ["timeout", "-k", "5", f"{job.node_seconds:g}", *job.command]

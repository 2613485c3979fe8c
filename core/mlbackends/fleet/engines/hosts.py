"""ssh, by ClusterShell: its connections at once, tree of gateways, time limits and sets of nodes."""

import logging
import shlex
import time
from typing import Any

from mlbackends.base.errors import BadInput
from mlbackends.fleet.engines import Job, Take, envelopes_of, limited
from mlbackends.fleet.frames import REPORT_LIMIT
from mlbackends.fleet.labels import explained, failures_in
from mlbackends.model.fleet import Envelope, Status

_CONNECT_SECONDS = 10
#: A connection is closed so long before the node's own limit, which ends what the connection leaves there.
_CLOSING_SECONDS = 5.0
#: What the exit codes of coreutils' timeout and of ssh mean.
_STATUSES = {255: Status.UNREACHABLE, **dict.fromkeys((None, 124, 137), Status.TIMEOUT)}


def expected(job: Job) -> tuple[str, ...]:
    """Return the nodes that are named."""
    return job.nodes


def run(job: Job, take: Take) -> None:
    """Run the command on every node by ssh, or by the worker that ClusterShell's defaults.conf names."""
    try:
        from ClusterShell.Event import EventHandler
        from ClusterShell.Task import task_self
        from ClusterShell.Worker.Worker import WorkerError
    except ImportError as error:
        raise BadInput(f"--hosts needs ClusterShell, which cannot be imported: {error}") from None

    class Handler(EventHandler):  # type: ignore[misc]
        """Collects the lines that each node at work prints until it is done."""

        def __init__(self) -> None:
            self.lines: dict[str, list[bytes]] = {}
            self.sizes: dict[str, int] = {}
            self.last: dict[str, str] = {}
            self.begun: dict[str, float] = {}

        def ev_pickup(self, worker: Any, node: str) -> None:
            """Keep when the command of a node began."""
            del worker
            self.begun[node] = time.monotonic()

        def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
            """Keep a line of output, and of errors the last."""
            del worker
            if sname != "stdout":
                self.last[node] = msg.decode(errors="replace").strip() or self.last.get(node, "")
                return
            self.sizes[node] = self.sizes.get(node, 0) + len(msg)
            if self.sizes[node] <= REPORT_LIMIT:
                self.lines.setdefault(node, []).append(msg)

        def ev_hup(self, worker: Any, node: str, rc: int) -> None:
            """Take a node whose command has ended."""
            del worker
            self.done(node, rc)

        def ev_close(self, worker: Any, timedout: bool) -> None:
            """Take the nodes that were too late."""
            if timedout:
                for node in worker.iter_keys_timeout():
                    self.done(str(node), None)

        def done(self, node: str, code: int | None) -> None:
            """Make envelopes of all that a node printed; code: None where it was stopped."""
            text = self.last.pop(node, "")
            text = next((failure.error for failure in failures_in(text.encode())), text)
            ending = "it was stopped" if code is None else f"exit code {code}"
            error = explained(f"{ending}: {text}".removesuffix(": "))
            status = _STATUSES.get(code, Status.ERROR)
            # Before the limit it is not from `timeout`.
            if code == 137 and time.monotonic() - self.begun.get(node, 0.0) < job.node_seconds:
                status, error = Status.ERROR, f"{error}: it was killed, perhaps because memory ran out"
            failure = None if code == 0 else Envelope(node=node, status=status, error=error)
            self.sizes.pop(node, None)
            for envelope in envelopes_of(b"\n".join(self.lines.pop(node, [])), node, failure):
                take(envelope)

    class Shared:
        """What each connection sends. ClusterShell adds it to what waits, and cuts off what was written."""

        def __radd__(self, waiting: bytes) -> memoryview:
            """Return it without a copy, of which neither adding to nothing nor cutting a view makes one."""
            return memoryview(waiting + job.given)

    # It warns of each node that ends before it has read all of the bundle; its error has an own line.
    logging.getLogger("ClusterShell").setLevel(logging.ERROR)
    task = task_self()
    task.set_info("fanout", job.fanout)
    task.set_info("connect_timeout", _CONNECT_SECONDS)
    try:
        worker = task.shell(
            shlex.join(limited(job)),
            nodes=",".join(job.nodes),
            handler=Handler(),
            timeout=job.node_seconds - _CLOSING_SECONDS,
            stderr=True,
        )
        if job.given:
            is_tree = task._default_tree_is_enabled()  # noqa: SLF001  nothing public says it
            worker.write(job.given if is_tree else Shared())
        task.resume()
    except (WorkerError, OSError) as error:
        raise BadInput(f"ClusterShell could not start: {error}") from None
    finally:
        task.abort()

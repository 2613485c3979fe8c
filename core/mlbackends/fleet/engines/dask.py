"""Dask: a task on one worker of each host of a running cluster, or tasks on whatever worker is free."""

import asyncio
import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from mlbackends.base.errors import BadInput, Incomplete, MlBackendsError
from mlbackends.fleet import payload
from mlbackends.fleet.engines import GRACE_SECONDS, Job, Take, from_worker
from mlbackends.host import command
from mlbackends.model.fleet import Envelope, Status

#: How long to wait for a result before checking that the scheduler still answers, or for a finished one.
SILENT_SECONDS = 60.0


def run(job: Job, take: Take) -> None:
    """Attach to the scheduler at the address, and run the command on every host that has a worker."""
    with _attached(job.where) as client:
        import cloudpickle
        from distributed import as_completed

        for module in (payload, command):
            cloudpickle.register_pickle_by_value(module)
        hosts: dict[str, str] = {}
        for address, worker in client.scheduler_info(n_workers=-1)["workers"].items():
            if not job.nodes or worker["host"] in job.nodes:
                hosts.setdefault(worker["host"], address)
        addresses = [*hosts.values()]
        given = client.scatter(job.given, workers=addresses, broadcast=True) if job.given else b""
        tasks: dict[Any, str] = {
            client.submit(
                payload.run, job.command, job.node_seconds, given,
                workers=[address], allow_other_workers=False, pure=False, retries=0, priority=1000,
            ): host
            for host, address in hosts.items()
        }  # fmt: skip
        taken: set[str] = set()
        try:
            for task in as_completed(
                tasks,
                timeout=job.node_seconds + GRACE_SECONDS,
                raise_errors=False,
                loop=client.loop,
            ):
                host = tasks.pop(task)
                try:
                    for envelope in from_worker(_result(task, job.where), taken, host):
                        take(envelope)
                except MlBackendsError as failure:
                    take(Envelope(node=host, status=Status.ERROR, error=str(failure)))
        except TimeoutError:
            pass
        for task, host in tasks.items():
            task.cancel()
            take(Envelope(node=host, status=Status.TIMEOUT, error="its worker did not answer"))


def each(where: str, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield what a function returns for each item, as the workers are done, and the item's place."""
    with _attached(where) as client:
        tasks = {
            client.submit(pickle.loads, pickle.dumps(_Call(function, item)), pure=False, retries=2): place
            for place, item in enumerate(items)
        }
        ended: SimpleQueue[Any] = SimpleQueue()
        for task in tasks:
            task.add_done_callback(ended.put)
        while tasks:
            try:
                task = ended.get(timeout=SILENT_SECONDS)
            except Empty:
                # A scheduler that hangs keeps its connection open.
                try:
                    asyncio.run(asyncio.wait_for(_handshake(where), 2 * GRACE_SECONDS))
                except OSError:
                    raise _lost(where) from None
                if client.status not in ("running", "connecting"):
                    raise _lost(where) from None
                continue
            yield tasks.pop(task), _result(task, where)


def _result(task: Any, where: str) -> Any:
    """Return the result of a finished task. Raises MlBackendsError."""
    if task.status == "error":
        raise MlBackendsError(f"a worker of Dask failed: {task.exception()}")
    try:
        return task.result(timeout=SILENT_SECONDS)
    except (OSError, CancelledError):
        raise _lost(where) from None


def _lost(where: str) -> Incomplete:
    return Incomplete(f"the Dask scheduler at {where} stopped, or cannot be reached")


class _Call:
    """Is a call when it is unpickled, in the task: a worker that cannot unpickle what it receives ends."""

    def __init__(self, function: Callable[[Any], Any], item: Any) -> None:
        self._parts = function, (item,)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._parts


@contextmanager
def _attached(where: str) -> Iterator[Any]:
    """Connect to the scheduler at an address. Raises BadInput."""
    try:
        from distributed import Client
    except ImportError:
        raise BadInput(
            "--dask needs Dask's distributed, which is not installed", "pip install distributed"
        ) from None
    if not where:
        raise BadInput("--dask needs the address of a scheduler, such as tcp://head:8786")
    try:
        asyncio.run(asyncio.wait_for(_handshake(where), 2 * GRACE_SECONDS))
        client = Client(where, timeout=GRACE_SECONDS, set_as_default=False)
    except TimeoutError:
        raise BadInput(f"what listens at {where} does not answer like a Dask scheduler") from None
    except (OSError, ValueError, MemoryError) as error:  # MemoryError: of another protocol's bytes
        raise BadInput(f"no Dask scheduler can be reached at {where}: {error}") from None
    # Its log of a lost connection becomes our one-line error.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    with client:
        if not client.scheduler_info(n_workers=-1)["workers"]:
            raise BadInput(f"the Dask scheduler at {where} has no workers")
        yield client


async def _handshake(where: str) -> None:
    """Connect and disconnect; a client itself waits without end for an answer to its handshake."""
    from distributed.comm import connect
    from distributed.security import Security

    arguments = Security().get_connection_args("client")
    comm = await connect(where, timeout=GRACE_SECONDS, **arguments)
    comm.abort()

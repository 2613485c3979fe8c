"""Ray: a task pinned to each node of a running cluster, or tasks wherever a CPU is free."""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mlbackends.base.errors import BadInput, MlBackendsError
from mlbackends.fleet import payload
from mlbackends.fleet.engines import GRACE_SECONDS, Job, Take, from_worker
from mlbackends.host import command
from mlbackends.model.fleet import Envelope, Status


def run(job: Job, take: Take) -> None:
    """Attach to the cluster at the address, by default the one that Ray finds, and run on every node."""
    with _attached(job.where) as ray:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        for module in (payload, command):
            ray.cloudpickle.register_pickle_by_value(module)
        task = ray.remote(num_cpus=0, max_retries=0)(payload.run)
        given = ray.put(job.given)
        pending: dict[Any, str] = {}
        for node in ray.nodes():
            name = node["NodeManagerHostname"]
            if job.nodes and name not in job.nodes:
                continue
            if not node["Alive"]:
                lost = "Ray reports that this node is dead"
                take(Envelope(node=name, status=Status.UNREACHABLE, error=lost))
                continue
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reference = task.options(scheduling_strategy=here).remote(job.command, job.node_seconds, given)
            pending[reference] = name
        taken: set[str] = set()
        end = time.monotonic() + job.node_seconds + GRACE_SECONDS
        while pending and (left := end - time.monotonic()) > 0:
            done, _ = ray.wait(list(pending), num_returns=1, timeout=left)
            for reference in done:
                name = pending.pop(reference)
                try:
                    found = from_worker(ray.get(reference), taken, name)
                except ray.exceptions.RayError as error:
                    text = f"its worker failed: {error}"
                    found = [Envelope(node=name, status=Status.ERROR, error=text)]
                for envelope in found:
                    take(envelope)
        for reference, name in pending.items():
            ray.cancel(reference, force=True)
            take(Envelope(node=name, status=Status.TIMEOUT, error="its worker did not answer"))


def each(where: str, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield what a function returns for each item, as the workers are done, and the item's place."""
    with _attached(where) as ray:

        def call(item: Any) -> Any:
            return function(item)

        task = ray.remote(num_cpus=1, max_retries=2)(call)
        pending = {task.remote(item): place for place, item in enumerate(items)}
        while pending:
            for reference in ray.wait(list(pending), num_returns=1)[0]:
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayError as error:
                    raise MlBackendsError(f"a worker of Ray failed: {error}") from None
                yield pending.pop(reference), result


@contextmanager
def _attached(where: str) -> Iterator[Any]:
    """Connect to the cluster at an address; yield Ray. Raises BadInput."""
    try:
        import ray
    except ImportError:
        raise BadInput("--ray needs Ray, which is not installed", "pip install ray") from None
    is_ours = not ray.is_initialized()
    host, _, port = where.removeprefix("ray://").rpartition(":")
    try:
        if is_ours and host and port.isdecimal():  # Ray itself tries for a minute
            socket.create_connection((host, int(port)), GRACE_SECONDS).close()
        if is_ours:
            ray.init(address=where or "auto", log_to_driver=False, logging_level="error")
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"no Ray cluster can be reached at {where or 'auto'}: {why}") from None
    try:
        yield ray
    finally:
        if is_ours:
            ray.shutdown()

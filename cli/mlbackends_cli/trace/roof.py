"""The speeds of this machine, that a trace of it is compared with."""

from functools import cache

from mlbackends.isolation.service import Lost
from mlbackends.model.trace_views import Roof
from mlbackends.sdpa.verify.processes import BANDWIDTH, PEAK, Plan, Processes, started
from mlbackends_cli.output import log

#: Many short ones: on a busy machine some are not disturbed, and the best counts.
_CALLS, _SECONDS = 50, 1.0


@cache
def measured() -> Roof | None:
    """Return them, measured within about two seconds; None, with a word, where they cannot be."""
    with started(Plan()) as processes:
        try:
            flops, by, threads = _speed(processes, PEAK, "flops")
            traffic, read_by, _ = _speed(processes, BANDWIDTH, "bytes")
        except Lost as lost:
            log(f"the speeds of this machine could not be measured: {lost.reason.message}")
            return None
    return Roof(gflops=flops, gigabytes_per_second=traffic, threads=threads, by=f"{by}; {read_by}")


def _speed(processes: Processes, name: str, unit: str) -> tuple[float, str, int]:
    """Return billions of a unit a second at best, how they were measured, and by how many threads."""
    details = processes.send(name, "", {"do": "prepare"})["details"]
    seconds = processes.send(name, "", {"do": "time", "seconds": _SECONDS, "calls": _CALLS})
    processes.stop()  # a pool of threads that waits would take time from the next
    rate = int(details[unit]) / min(seconds["seconds"]) / 1e9
    return rate, str(details["by"]), int(details.get("threads", 0))

"""Samples of the machine's use, each since the previous one.

Sources: Linux Documentation/accounting/psi.rst and admin-guide/cgroup-v2.rst.
"""

import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Self

from msgspec.structs import replace

from mlbackends.base.errors import BadInput, some
from mlbackends.base.quantities import numbers_by_name, utc, whole_number
from mlbackends.base.reasons import Reason
from mlbackends.base.version import __version__
from mlbackends.host.host import Host
from mlbackends.host.system import cgroups
from mlbackends.host.system.kernel import mounts
from mlbackends.model.usage import SCHEMA, GpuUsage, GroupUsage, MachineUsage, ProcessUsage, Usage
from mlbackends.usage.gpus import Gpus
from mlbackends.usage.processes import Processes, by_psutil

#: The orders of processes: the largest first, names and pids ascending.
SORTS: dict[str, Callable[[ProcessUsage], Any]] = {
    "cpu": lambda process: -(process.cpu_percent or 0),
    "memory": lambda process: -(process.memory_bytes or 0),
    "gpu": lambda process: (
        -(process.gpu_memory_bytes or 0),
        -len(process.gpus),
        -(process.cpu_percent or 0),
    ),
    "threads": lambda process: -(process.threads or 0),
    "name": lambda process: process.name.lower(),
    "pid": lambda process: process.pid,
}


class Sampler:
    """Takes samples; the first has no CPU use yet.

    host: the machine whose control groups and NVML are read. proc, seconds: as of `Processes`.
    """

    def __init__(self, host: Host | None = None, proc: str = "/proc", seconds: float = inf) -> None:
        self._host = host or Host()
        self._gpus = Gpus(self._host)
        self._processes = Processes(proc, seconds) if sys.platform == "linux" else None
        self._time = 0.0
        self._group: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._gpus.close()

    def sample(self) -> Usage:
        """Return the use since the last sample, of all processes."""
        if sys.platform == "linux" and not os.path.exists("/proc/stat"):
            raise BadInput("/proc is not mounted, which lists processes and their use")
        gpus, problem = self._gpus.read()  # the first time it may take seconds
        now = time.monotonic()
        seconds, self._time = now - self._time if self._time else 0.0, now
        group = self._own_group(seconds)
        everyone = self._processes.read(seconds) if self._processes else [*by_psutil()]
        processes, strangers = on_gpus(everyone, gpus)
        return Usage(
            schema=SCHEMA,
            tool=f"backends {__version__}",
            created=utc(),
            interval_seconds=round(seconds, 3),
            redacted=False,
            machine=_machine(is_first=not seconds),
            group=group,
            gpus=gpus,
            process_count=len(processes),
            processes=tuple(processes),
            notes=tuple(filter(None, (self._note(), problem, strangers))),
        )

    def _note(self) -> Reason | None:
        """Return which processes or libraries cannot be seen, if any."""
        if self._processes is None:
            message = "only Linux lists the libraries that a process has mapped"
            return Reason("not-this-platform", message)
        options = {option for mount in mounts(self._host) if mount.kind == "proc" for option in mount.options}
        if options & {"hidepid=1", "hidepid=2", "hidepid=noaccess", "hidepid=invisible"}:
            return Reason("permission-denied", "/proc hides other users' processes (hidepid)")
        return None

    def _own_group(self, seconds: float) -> GroupUsage:
        host = self._host
        quota, limit = cgroups.cpu_quota(host), cgroups.limit(host, "memory_limit_bytes")
        folder = (quota.folder if quota else "") or next(iter(cgroups.home(host, "cpu")[1]), "")
        statistics = numbers_by_name(host.read(f"{folder}/cpu.stat", 65536))
        if nanoseconds := whole_number(host.read(f"{folder}/cpuacct.usage", 64)):  # version 1
            statistics["usage_usec"] = nanoseconds // 1000
        rise = {name: value - self._group.get(name, value) for name, value in statistics.items()}
        has_two, self._group = bool(self._group) and seconds > 0, {**statistics}
        used, periods = rise.get("usage_usec"), rise.get("nr_periods")
        stopped = rise.get("nr_throttled", 0)
        # The percentage of the last ten seconds in which some process waited.
        waits: dict[str, float] = {}
        for name in ("cpu", "memory", "io"):
            text = host.read(f"{folder}/{name}.pressure", 4096)
            text = text or host.read(f"/proc/pressure/{name}", 4096)
            with suppress(ValueError, IndexError):
                waits[name] = float(text.split("avg10=", 1)[1].split(None, 1)[0])
        return GroupUsage(
            cpus=quota.value if quota and quota.value < inf else None,
            cpu_percent=round(used / seconds / 1e4, 1) if has_two and used is not None else None,
            throttled_percent=round(100 * stopped / periods, 1) if has_two and periods else None,
            memory_bytes=cgroups.memory_usage(host, limit.folder if limit else ""),
            memory_limit_bytes=int(limit.value) if limit and limit.value < inf else None,
            pressure=waits,
        )


def on_gpus(
    everyone: list[ProcessUsage], gpus: Sequence[GpuUsage]
) -> tuple[list[ProcessUsage], Reason | None]:
    """Return the processes with their GPUs and GPU memory, and a note on those that are not visible.

    In a container the driver may report pids of the host: a visible process that has not mapped the CUDA
    driver is a different one.
    """
    by_pid = {process.pid: process for process in everyone}
    strangers = []
    for gpu in gpus:
        for user in gpu.processes:
            process = by_pid.get(user.pid)
            libraries = process.libraries if process else ()
            has_cuda = libraries is None or any(library.name == "cuda_driver" for library in libraries)
            if process and has_cuda:
                memory = (process.gpu_memory_bytes or 0) + (user.memory_bytes or 0)
                indexes = tuple(sorted({*process.gpus, gpu.index}))  # several for MIG instances
                by_pid[user.pid] = replace(process, gpus=indexes, gpu_memory_bytes=memory or None)
                continue
            name = f" ({user.name})" if user.name else ""
            strangers.append(f"{user.pid}{name} on GPU {gpu.index}")
    message = f"GPUs are used by processes that are not visible here: {some(tuple(strangers))}"
    return [*by_pid.values()], Reason("not-seen", message) if strangers else None


def _machine(*, is_first: bool) -> MachineUsage:
    import psutil

    percents = tuple(psutil.cpu_percent(percpu=True))
    memory = psutil.virtual_memory()
    swap = None
    # Windows reads it from performance counters, which may be disabled.
    with suppress(OSError, RuntimeError):
        swap = psutil.swap_memory()
    return MachineUsage(
        cpus=len(percents),
        cpu_percent=None if is_first else round(sum(percents) / (len(percents) or 1), 1),
        core_percents=() if is_first else percents,
        load=tuple(round(load, 2) for load in os.getloadavg()) if hasattr(os, "getloadavg") else (),
        memory_bytes=memory.total,
        memory_used_bytes=memory.total - memory.available,
        swap_bytes=swap.total if swap else None,
        swap_used_bytes=swap.used if swap else None,
    )


def selected(usage: Usage, sort: str, pids: Collection[int] = (), text: str = "") -> Usage:
    """Return a sample with its processes sorted and filtered.

    sort: one of SORTS. pids: only these. text: only processes whose pid, name, user, command or libraries
    contain it.
    """

    def is_selected(process: ProcessUsage) -> bool:
        if pids and process.pid not in pids:
            return False
        libraries = (
            f"{library.name} {library.version} {library.path}" for library in process.libraries or ()
        )
        words = (str(process.pid), process.name, process.user, process.command, *libraries)
        return text.lower() in "\n".join(words).lower()

    chosen = filter(is_selected, usage.processes)
    return replace(usage, processes=tuple(sorted(chosen, key=lambda each: (SORTS[sort](each), each.pid))))

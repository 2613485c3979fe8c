"""The processes of a machine, sampled cheaply: on Linux from /proc, elsewhere by psutil.

On Linux one file per process is read each time. Everything whose changes show in that file is cached: the
name until the program changes, mapped libraries until the mapped size changes. Sources: proc_pid_stat(5);
sched_getaffinity(2).
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from math import inf
from typing import Any

from mlbackends.base.patterns import without_secrets
from mlbackends.base.quantities import one_line
from mlbackends.host.host import Host
from mlbackends.host.system.cgroups import cpu_quota
from mlbackends.model.usage import ProcessUsage
from mlbackends.usage.mapped import POOLS, Mapped

#: PF_KTHREAD of include/linux/sched.h.
_KERNEL_THREAD = 0x00200000
#: The number of samples after which the CPUs that a process may use are read again.
_ROUNDS = 16
#: The share of one CPU, or of a smaller quota, from which on a process counts as busy.
_BUSY_PERCENT = 10
#: The number of threads that one sample examines; each costs 20 microseconds.
_MOST_THREADS = 512
#: How long the first sample reads mapped libraries.
_FIRST_SECONDS = 2.0
_COMMAND = 4096
_OF_PSUTIL = ("name", "username", "cmdline", "status", "num_threads", "memory_info", "cpu_percent")

#: The fields of a `ProcessUsage`.
Row = dict[str, Any]


class _Process:
    """The state of a process between two samples; an equal `identity` means the same program."""

    def __init__(self, identity: tuple[str, str]) -> None:
        self.identity = identity
        self.fields: Row = {}
        self.ticks = self.mapped_bytes = -1
        self.read_at = 0.0


class Processes:
    """Reads processes; from the second sample on with their CPU use since the previous one.

    proc: the folder of processes. seconds: how long one sample may read mapped files.
    """

    def __init__(self, proc: str = "/proc", seconds: float = inf) -> None:
        self._proc, self._seconds = proc, seconds
        self._mapped = Mapped(proc)
        self._processes: dict[int, _Process] = {}
        self._kernel: set[int] = set()
        self._quotas: dict[bytes, float] = {}
        self._round = 0

    def read(self, seconds: float) -> list[ProcessUsage]:
        """Return every process except kernel threads. seconds: since the last sample."""
        per_tick = 100 / os.sysconf("SC_CLK_TCK") / seconds if seconds else 0.0
        page = os.sysconf("SC_PAGE_SIZE")
        pids = {int(name) for name in os.listdir(self._proc) if name.isdecimal()}
        self._round += 1
        # Some are checked again: a pid may belong to another process by now.
        due = self._round % _ROUNDS
        self._kernel = {pid for pid in self._kernel & pids if pid % _ROUNDS != due}
        rows: list[Row] = []
        processes: dict[int, _Process] = {}
        stale: list[tuple[float, int, int]] = []
        for pid in pids - self._kernel:
            try:
                comm, numbers = self._status(pid)
            except PermissionError:  # with hidepid only pid and owner are visible
                rows.append({"pid": pid, "name": "", "user": self._user(pid)})
                continue
            except (OSError, ValueError):  # it has ended
                continue
            if int(numbers[6]) & _KERNEL_THREAD:
                self._kernel.add(pid)
                continue
            process = processes[pid] = self._process(pid, (numbers[19], comm))
            ticks = int(numbers[11]) + int(numbers[12])
            if process.ticks >= 0 and per_tick:
                process.fields["cpu_percent"] = round(max(0, ticks - process.ticks) * per_tick, 1)
            process.ticks = ticks
            if "cpus" not in process.fields or pid % _ROUNDS == due:
                process.fields["cpus"] = self._cpus(pid)
            process.fields["state"] = numbers[0]
            process.fields["threads"] = int(numbers[17])
            process.fields["memory_bytes"] = int(numbers[21]) * page
            rows.append(process.fields)
            if int(numbers[20]) != process.mapped_bytes:
                stale.append((process.read_at, pid, int(numbers[20])))
        self._processes = processes
        # Mapped libraries are read within a time limit, those that have waited longest first.
        end = time.monotonic() + (self._seconds if self._round > 1 else _FIRST_SECONDS)
        for _, pid, mapped_bytes in sorted(stale):
            if time.monotonic() > end:
                break
            process = processes[pid]
            process.read_at, process.mapped_bytes = time.monotonic(), mapped_bytes
            process.fields["libraries"] = None
            with suppress(OSError):
                process.fields["libraries"] = self._mapped.libraries(pid)
        self._count_running(rows)
        return [ProcessUsage(**row) for row in rows]

    def _status(self, pid: int) -> tuple[str, list[str]]:
        """Return a process's name, and the fields behind it; the name in parentheses may hold anything."""
        with open(f"{self._proc}/{pid}/stat", "rb", buffering=0) as file:
            data = file.read(4096).decode(errors="replace")
        before, _, rest = data.rpartition(")")
        numbers = rest.split()
        if len(numbers) < 22:
            raise ValueError(data)
        return before.partition("(")[2], numbers

    def _process(self, pid: int, identity: tuple[str, str]) -> _Process:
        """Return the state of a process, with a new name if it runs another program now."""
        previous = self._processes.get(pid)
        if previous and previous.identity == identity:
            return previous
        process = _Process(identity)
        if previous and previous.identity[0] == identity[0]:
            process.ticks = previous.ticks
        arguments: list[str] = []
        with suppress(OSError), open(f"{self._proc}/{pid}/cmdline", "rb", buffering=0) as file:
            arguments = file.read(_COMMAND).decode(errors="replace").rstrip("\0").split("\0")
        process.fields = {
            "pid": pid,
            "name": name_of(one_line(identity[1]), arguments),
            "user": self._user(pid),
            "command": one_line(without_secrets(" ".join(arguments)), _COMMAND),
        }
        return process

    def _user(self, pid: int) -> str:
        import pwd

        try:
            number = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return ""
        with suppress(KeyError):
            return one_line(pwd.getpwuid(number).pw_name)
        return str(number)

    def _cpus(self, pid: int) -> float | None:
        """Return the number of CPUs that affinity and control group quota allow a process."""
        try:
            count = len(os.sched_getaffinity(pid))
            with open(f"{self._proc}/{pid}/cgroup", "rb", buffering=0) as file:
                group = file.readall()
        except OSError:
            return None
        if group not in self._quotas or self._round % _ROUNDS == hash(group) % _ROUNDS:
            quota = cpu_quota(Host(pid=pid, environment={}))
            self._quotas[group] = quota.value if quota else inf
        return min(count, self._quotas[group])

    def _count_running(self, rows: list[Row]) -> None:
        """Count the runnable threads of processes that are busy with more threads than CPUs."""
        left = _MOST_THREADS
        for row in rows:
            row["running_threads"] = None
            has_pool = any(library.name in POOLS for library in row.get("libraries") or ())
            cpus = row.get("cpus") or inf
            is_busy = (row.get("cpu_percent") or 0) >= _BUSY_PERCENT * min(1, cpus)
            if has_pool and is_busy and row["threads"] > cpus:
                left -= row["threads"]
                if left >= 0:
                    states = []
                    with suppress(OSError):
                        for task in os.listdir(f"{self._proc}/{row['pid']}/task"):
                            path = f"{self._proc}/{row['pid']}/task/{task}/stat"
                            with open(path, "rb", buffering=0) as file:
                                states.append(file.read(512).rpartition(b")")[2][1:2])
                    row["running_threads"] = states.count(b"R")
            row["oversubscribed"] = (row["running_threads"] or 0) > cpus


def name_of(comm: str, arguments: list[str]) -> str:
    """Return the usual name of a process; for Python with its program: "python train.py"."""
    if not any(os.path.basename(word).startswith("python") for word in (comm, *arguments[:1])):
        return comm
    for before, argument in pairwise(arguments):
        if before == "-m" or argument == "-c":
            return one_line("python -c" if argument == "-c" else f"python -m {argument}", 80)
        if before not in ("-W", "-X") and not argument.startswith("-"):
            return one_line(f"python {os.path.basename(argument)}", 80)
    return comm


def by_psutil() -> Iterator[ProcessUsage]:
    """Yield every process on systems without /proc; mapped libraries are unknown there.

    psutil keeps the processes of the last call, so that the next one has their CPU use.
    """
    import psutil

    for process in psutil.process_iter():
        values: dict[str, Any] = {}
        with suppress(psutil.NoSuchProcess), process.oneshot():
            for name in _OF_PSUTIL:
                # Access may be denied; Windows lacks some.
                with suppress(psutil.AccessDenied, OSError):
                    values[name] = getattr(process, name)()
        arguments = values.get("cmdline") or []
        if not values:  # it has ended
            continue
        yield ProcessUsage(
            pid=process.pid,
            name=name_of(one_line(values.get("name") or ""), arguments),
            user=one_line(values.get("username") or ""),
            command=one_line(without_secrets(" ".join(arguments)), _COMMAND),
            state=(values.get("status") or "")[:1].upper(),
            cpu_percent=values.get("cpu_percent"),
            threads=values.get("num_threads"),
            memory_bytes=values["memory_info"].rss if "memory_info" in values else None,
        )

"""How fast this machine is: arithmetic, memory, matrix products, attention and a disk, within a time limit.

All are timed in turn, round by round, each in its own process while the others are paused: what disturbs the
machine for a moment slows down one round of several figures, and not all rounds of one.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import psutil

from mlbackends.base.errors import BadInput, shown
from mlbackends.base.mounts import check, check_temporary
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.system.cgroups import throttling
from mlbackends.isolation.service import Lost
from mlbackends.model.machine_speed import SCHEMA, Figure, MachineSpeed
from mlbackends.sdpa.verify.problem_check import LARGEST_WAIT, quarters
from mlbackends.sdpa.verify.processes import BANDWIDTH, PEAK, Plan, Processes, started
from mlbackends.sdpa.verify.run import machine

#: The process of each figure, its unit, and what limits it unless that is measured.
FIGURES = {
    "arithmetic": (PEAK, "GFLOP/s", ""),
    "memory": (BANDWIDTH, "GB/s", "memory"),
    "product": ("product", "GFLOP/s", ""),
    "attention": ("attention", "GFLOP/s", ""),
    "disk-write": ("disk-write", "GB/s", "the disk and its file system"),
    "disk-read": ("disk-read", "GB/s", "the disk and its file system"),
}
_ROUND_SECONDS = 0.18
#: Ending the processes and writing the record.
_END_SECONDS = 0.8
#: How long the CPUs are watched before the first round, and what share of them others may use.
_WATCH_SECONDS, _MOST_BUSY = 0.3, 0.1
_MOST_STOLEN = 0.01
_THROTTLED = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"


def bench(
    rounds: int, seconds: float, folder: str = "", progress: Callable[[int, int, str], None] = lambda *_: None
) -> MachineSpeed:
    """Return the speeds of this machine, measured within a number of seconds, in fewer rounds if need be.

    folder: on the disk to measure, "" for that of temporary files. Raises BadInput if it is not a folder,
    NotAnswering if it is on a mount that does not answer.
    """
    begin = time.monotonic()
    check_temporary()
    folder = folder or tempfile.gettempdir()
    check(folder)
    if not os.path.isdir(folder):
        raise BadInput(f"--disk: {shown(folder)} is not a folder")
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    before, busy = counters(Host("/")), psutil.cpu_percent(_WATCH_SECONDS) / 100
    with started(Plan()) as processes:
        timings = [Timing(processes, name, begin + seconds - _END_SECONDS) for name in FIGURES]
        for timing in timings:
            timing.send({"do": "prepare", "folder": folder})
        for number in range(rounds):
            progress(number, rounds, "")
            for timing in timings:
                timing.time()
    about, arithmetic = machine(), timings[0].rates
    limits = {"arithmetic": f"{about['threads']} of {os.cpu_count()} CPUs"}
    for timing in timings[1:]:
        if arithmetic and timing.rates and timing.figure().unit == "GFLOP/s":
            share = undisturbed(timing.rates) / undisturbed(arithmetic)
            limits[timing.name] = f"{share:.0%} of arithmetic"
    waited = max((median(timing.waited) for timing in timings if timing.waited), default=0.0)
    return MachineSpeed(
        schema=SCHEMA,
        rounds=max(len(timing.rates) for timing in timings),
        seconds=round(time.monotonic() - begin, 2),
        figures=tuple(timing.figure(limits.get(timing.name, "")) for timing in timings),
        disturbed=disturbances(before, counters(Host("/")), busy, waited),
        load=load,
        **about,
    )


class Timing:
    """The rounds of one figure, up to a time.

    rates: the best of each round. waited: the seconds that threads waited for a CPU in each second.
    """

    def __init__(self, processes: Processes, name: str, end: float) -> None:
        self.name, self.rates, self.waited = name, list[float](), list[float]()
        self._processes, self._end, self._calls = processes, end, 0
        self._details: dict[str, str] = {}
        self._reason: Reason | None = None
        processes.start(FIGURES[name][0], "")  # all load their libraries at once

    def send(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, {} if something has failed or no time is left."""
        left = self._end - time.monotonic()
        if self._reason is None and left <= 0:
            self._reason = Reason("timed-out", "the time was over before it was measured")
        try:
            process = FIGURES[self.name][0]
            answer = {} if self._reason else self._processes.send_alone(process, "", request, left)
        except Lost as lost:
            self._reason, answer = lost.reason, {}
        self._details = answer.get("details", self._details)
        return answer

    def time(self) -> None:
        """Time one round."""
        answer = self.send({"do": "time", "seconds": _ROUND_SECONDS, "calls": 10_000})
        if seconds := answer.get("seconds"):
            size = int(self._details.get("flops") or self._details["bytes"])
            self.rates.append(size / min(seconds) / 1e9)
            self._calls += len(seconds)
            self.waited += [answer["waited"]] if "waited" in answer else []

    def figure(self, limit: str = "") -> Figure:
        """Return what was measured; what failed after some rounds has these."""
        _, unit, usual = FIGURES[self.name]
        if not self.rates:
            return Figure(self.name, unit, reason=self._reason)
        value = undisturbed(self.rates)
        lower, upper = quarters(self.rates)
        by, spread = self._details["by"], (upper - lower) / value
        return Figure(self.name, unit, value, spread, self._calls, by, limit or usual)


def undisturbed(rates: Sequence[float]) -> float:
    """Return the speed of a figure by those of its rounds: the upper quartile.

    Three of five rounds may be disturbed; and one that was fast by chance does not count.
    """
    return float(f"{quarters(rates)[1]:.5g}")


def counters(host: Host) -> tuple[float, float, int, int]:
    """Return what rises while a machine is disturbed.

    Seconds of CPUs that the hypervisor took, and all; periods in which a quota stopped the group; how often
    heat lowered a clock.
    """
    times, stops = psutil.cpu_times(), throttling(host)
    hot = sum(host.read_int(path) or 0 for path in host.glob(_THROTTLED))
    return getattr(times, "steal", 0.0), sum(times), stops[1] if stops else 0, hot


def disturbances(
    before: Sequence[float], after: Sequence[float], busy: float, waited: float
) -> tuple[Reason, ...]:
    """Return what disturbed the machine between two `counters`.

    busy: the share of the CPUs that others used before the rounds. waited: as of `Timing`, in them.
    """
    taken, total, stops, hot = (new - old for old, new in zip(before, after, strict=True))
    stolen = taken / max(total, 0.01)
    was_busy = busy > _MOST_BUSY
    has_waited = waited > LARGEST_WAIT and not was_busy
    found = (
        (was_busy, "busy", f"other work used {busy:.0%} of the CPUs before the first round"),
        (has_waited, "busy", f"threads waited for a CPU for {waited:.2g} s in each second"),
        (stolen > _MOST_STOLEN, "cpu-stolen", f"the hypervisor took {stolen:.0%} of the CPU time"),
        (stops > 0, "throttled", f"the CPU quota stopped the group in {stops} periods"),
        (hot > 0, "clock-throttled", f"the clock was lowered {hot} times because of heat"),
    )
    return tuple(Reason(code, message) for is_so, code, message in found if is_so)

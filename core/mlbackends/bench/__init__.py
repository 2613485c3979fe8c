"""How fast this machine is: arithmetic, memory, matrix products, attention and a disk, within a time limit.

All are timed in turn, round by round, each in its own process while the others are paused: what disturbs the
machine for a moment slows down one round of several figures, and not all rounds of one.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import psutil
from msgspec import Struct
from msgspec.structs import replace

from mlbackends.base.errors import BadInput, shown
from mlbackends.base.mounts import check, check_temporary
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.system.cgroups import throttling
from mlbackends.isolation.service import Lost
from mlbackends.model.machine_speed import SCHEMA, Figure, MachineSpeed
from mlbackends.sdpa.verify.problem_check import LARGEST_WAIT, quarters
from mlbackends.sdpa.verify.processes import (
    ATTENTION,
    BANDWIDTH,
    PEAK,
    PRODUCT,
    READ,
    WRITE,
    Plan,
    Processes,
    started,
)
from mlbackends.sdpa.verify.run import machine

Progress = Callable[[int, int, str], None]

#: The process of each figure.
FIGURES = {
    "arithmetic": PEAK,
    "memory": BANDWIDTH,
    "product": PRODUCT,
    "attention": ATTENTION,
    "disk-write": WRITE,
    "disk-read": READ,
}
_ROUND_SECONDS = 0.18
#: Ending the processes and writing the record.
_END_SECONDS = 0.8
#: How long the CPUs are watched before the first round, and what share of them others may use.
_WATCH_SECONDS, _MOST_BUSY = 0.3, 0.1
_MOST_STOLEN = 0.01
_THROTTLED = "/sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"


def bench(
    rounds: int, seconds: float, folder: str = "", progress: Progress = lambda *_: None
) -> MachineSpeed:
    """Return the speeds of this machine, measured within a number of seconds, in fewer rounds if need be.

    folder: on the disk to measure, "" for that of temporary files. Raises BadInput if it is not a folder,
    NotAnswering if it is on a mount that does not answer.
    """
    begin = time.monotonic()
    end = begin + seconds - _END_SECONDS
    check_temporary()
    folder = folder or tempfile.gettempdir()
    check(folder)
    if not os.path.isdir(folder):
        raise BadInput(f"--disk: {shown(folder)} is not a folder")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    before = Disturbance.now(Host("/"))
    busy = psutil.cpu_percent(_WATCH_SECONDS) / 100
    with started(Plan()) as processes:
        timings = {name: Timing(process, name, end) for name, process in FIGURES.items()}
        for timing in timings.values():
            processes.start(timing.process, "")  # they load their libraries at once
        for timing in timings.values():
            timing.prepare(processes, folder)
        for number in range(rounds):
            progress(number, rounds, "")
            for timing in timings.values():
                timing.time(processes)
    about, figures = machine(), {name: timing.figure() for name, timing in timings.items()}
    waited = [timing.waited for timing in timings.values() if timing.waited]
    return MachineSpeed(
        schema=SCHEMA,
        rounds=max(len(timing.rates) for timing in timings.values()),
        seconds=round(time.monotonic() - begin, 2),
        figures=tuple(
            _limited(figure, figures["arithmetic"].value, about["threads"]) for figure in figures.values()
        ),
        disturbed=Disturbance.now(Host("/")).since(before, busy, max(map(median, waited), default=0.0)),
        load=None if load is None else round(load, 2),
        **about,
    )


class Timing:
    """The rounds of one figure.

    rates: the best of each round. waited: the seconds that threads waited for a CPU in each second.
    """

    def __init__(self, process: str, name: str, end: float) -> None:
        self.process, self.name = process, name
        self.rates: list[float] = []
        self.waited: list[float] = []
        self._end, self._calls = end, 0
        self._details: Mapping[str, str] = {}
        self._reason: Reason | None = None

    def prepare(self, processes: Processes, folder: str) -> None:
        """Make what will be timed, such as a file in a folder."""
        answer = self._sent(processes, {"do": "prepare", "folder": folder})
        self._details = answer.get("details", {})

    def time(self, processes: Processes) -> None:
        """Time one round, if nothing has failed and time is left."""
        answer = self._sent(processes, {"do": "time", "seconds": _ROUND_SECONDS, "calls": 10_000})
        if seconds := answer.get("seconds"):
            size = int(self._details.get("flops") or self._details["bytes"])
            self.rates.append(size / min(seconds) / 1e9)
            self._calls += len(seconds)
            self.waited += [answer["waited"]] if "waited" in answer else []

    def _sent(self, processes: Processes, request: dict[str, Any]) -> dict[str, Any]:
        left = self._end - time.monotonic()
        if self._reason is None and left <= 0:
            self._reason = Reason("timed-out", "the time was over before it was measured")
        if self._reason is not None:
            return {}
        try:
            return processes.send_alone(self.process, "", request, left)
        except Lost as lost:
            self._reason = lost.reason
            return {}

    def figure(self) -> Figure:
        """Return what was measured; what failed after some rounds has these."""
        made = Figure(self.name, "GB/s" if self.process in (BANDWIDTH, WRITE, READ) else "GFLOP/s")
        if not self.rates:
            return replace(made, reason=self._reason)
        value = undisturbed(self.rates)
        lower, upper = quarters(self.rates)
        return replace(
            made,
            value=value,
            spread=(upper - lower) / value,
            repetitions=self._calls,
            by=self._details.get("by", ""),
        )


def undisturbed(rates: Sequence[float]) -> float:
    """Return the speed of a figure by those of its rounds: the upper quartile.

    Three of five rounds may be disturbed; and one that was fast by chance does not count.
    """
    return float(f"{quarters(rates)[1]:.5g}")


def _limited(figure: Figure, arithmetic: float | None, threads: int) -> Figure:
    if not figure.value:
        return figure
    if figure.name == "arithmetic":
        limit = f"{threads} of {os.cpu_count()} CPUs"
    elif figure.unit == "GFLOP/s":
        limit = f"{figure.value / arithmetic:.0%} of arithmetic" if arithmetic else ""
    else:
        limit = "memory" if figure.name == "memory" else "the disk and its file system"
    return replace(figure, limited_by=limit)


class Disturbance(Struct, frozen=True):
    """What tells whether speeds are those of a machine that did nothing else: counters since the start.

    stolen, total: seconds of CPUs. stops: periods in which a quota stopped the group. hot: lowered clocks.
    """

    stolen: float
    total: float
    stops: int
    hot: int

    @classmethod
    def now(cls, host: Host) -> "Disturbance":
        """Return the counters."""
        times = psutil.cpu_times()
        stops = throttling(host)
        hot = sum(host.read_int(path) or 0 for path in host.glob(_THROTTLED))
        return cls(getattr(times, "steal", 0.0), sum(times), stops[1] if stops else 0, hot)

    def since(self, before: "Disturbance", busy: float, waited: float) -> tuple[Reason, ...]:
        """Return what disturbed the machine. busy, waited: shares, before the rounds and in them."""
        found = []
        if busy > _MOST_BUSY:
            found.append(Reason("busy", f"other work used {busy:.0%} of the CPUs before the first round"))
        elif waited > LARGEST_WAIT:
            found.append(Reason("busy", f"threads waited for a CPU for {waited:.2g} s in each second"))
        stolen = (self.stolen - before.stolen) / max(self.total - before.total, 0.01)
        if stolen > _MOST_STOLEN:
            found.append(Reason("cpu-stolen", f"the hypervisor took {stolen:.0%} of the CPU time"))
        if stops := self.stops - before.stops:
            found.append(Reason("throttled", f"the CPU quota stopped the group in {stops} periods"))
        if hot := self.hot - before.hot:
            found.append(Reason("clock-throttled", f"the clock was lowered {hot} times because of heat"))
        return tuple(found)

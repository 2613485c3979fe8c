"""Concurrent callers each used their own thread pool: together more threads than CPUs."""

from collections import defaultdict
from collections.abc import Sequence
from math import inf

from mlbackends.model.trace import GraphPartition, Info, MklCall, Record, Ukernel
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Calls, Found, Sum, is_on_gpu, percent, pool_of, times, took
from mlbackends.tracing.numbers import whole_number

_LEAST_CALLERS = 1.5
_TIMES_MORE = 1.25
#: The threads of a call of oneDNN: those of its process.
_OF_PROCESS = -1
Place = tuple[str, int | None]


class Finder(finder.Finder):
    """Compares the time of all calls with the time that passed, where calls have stamps.

    Of MKL without stamps: calls from several threads of one parallel region that may use several each.
    Only OpenMP gives each caller a pool; TBB's, SYCL's and frameworks' own are shared.
    """

    WANTS = frozenset(("work", "uncounted", "notes"))
    WHY = "each caller wakes its own threads, which compete for CPUs and spin at barriers"
    ACTION = (
        "give each caller CPUs / callers threads (OMP_NUM_THREADS, MKL_NUM_THREADS,"
        " torch.set_num_threads; taskset for processes), or fewer callers more work"
    )

    def begin(self) -> None:
        self._pools: dict[Place, int] = {}
        self._is_decomposed = False
        self._spans: dict[str, tuple[float, float]] = {}
        self._busy: defaultdict[tuple[Place, int], Sum] = defaultdict(lambda: Sum(1))

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Info) and record.values.get("runtime", "").lower() == "openmp":
            pool = whole_number(record.values.get("nthr", "")) or 0
            self._pools[record.source, record.process] = pool
        elif isinstance(record, GraphPartition) and "decomp" in record.implementation:
            self._is_decomposed = True

    def add(self, record: Record) -> None:
        self.take(record, 1, 0.0)
        self._span(record, 1, (record.duration_ns or 0.0,))

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        self._span(record, count, durations or (0.0,))

    def _span(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Widen the time in which calls of a source ran by one call, or the last of several."""
        if record.start_ns is None or record.clock != "epoch" or not record.counted:
            return
        if isinstance(record, Ukernel) or is_on_gpu(record):  # they use no pool
            return
        first, last = self._spans.get(record.source, (inf, -inf))
        start = record.start_ns
        self._spans[record.source] = min(first, start), max(last, start + durations[-1])
        pool = pool_of(record) if isinstance(record, MklCall) else _OF_PROCESS
        self._busy[(record.source, record.process), pool].add(record, count, sum(durations))

    def result(self) -> Found:
        for source, (first, last) in self._spans.items():
            sums = [each for each in self._busy.items() if each[0][0][0] == source]
            yield from self._at_once(sums, last - first)
        nested: defaultdict[tuple[str, int], list[Calls]] = defaultdict(list)
        for calls in self.calls:
            # A process is known where a capture put its own numbers of threads.
            if (
                isinstance(calls.record, MklCall)
                and calls.record.process is None
                and calls.pool > 1
            ):
                nested[calls.record.source, calls.pool].append(calls)
        for (_, pool), group in nested.items():
            yield from self._nested(pool, group)

    def _at_once(self, sums: list[tuple[tuple[Place, int], Sum]], wall_ns: float) -> Found:
        if wall_ns <= 0:
            return
        pools = [self._pools.get(place, 0) if n == _OF_PROCESS else n for (place, n), _ in sums]
        calls = [busy for _, busy in sums]
        busy_ns = sum(busy.total_ns for busy in calls)
        callers, most = busy_ns / wall_ns, max(pools)
        advice = (
            sum(busy.total_ns * pool for busy, pool in zip(calls, pools, strict=True)) / wall_ns
        )
        cpus = self.machine.cpus or most
        if callers < _LEAST_CALLERS or most < 2 or advice < _TIMES_MORE * cpus:
            return
        processes = {process for ((_, process), _), _ in sums if process is not None}
        several = len(processes) > 1
        if self._is_decomposed and not several:
            return  # oneDNN itself ran the parts of a graph side by side, each with one thread
        of = f" of {len(processes)} processes" if several else ""
        left = self.machine.cpus_left if self.machine.cpus else f"one pool has {most}"
        why = self.WHY
        if not self.machine.cpus:
            why += "; CPUs for all of them would be well used: --this-machine compares"
        if not several and any(pool == _OF_PROCESS for (_, pool), _ in sums):
            why += "; but where one parallel region made all these calls, each has one thread only"
        yield self.finding(
            "medium" if several and self.machine.cpus else "low",
            f"{callers:.1f} calls{of} ran at the same time, each with up to {times(most, 'thread')}: about"
            f" {advice:.1f} in all; {left}",
            why=why,
            evidence=tuple(line for busy in calls for line in busy.lines)[:4],
            count=sum(busy.count for busy in calls),
            total_ns=busy_ns,
        )

    def _nested(self, pool: int, group: list[Calls]) -> Found:
        callers = 1 + max(
            (thread for each in group for thread in each.threads if thread), default=0
        )
        calls = Sum(2)
        for each in group:
            if any(each.threads - {None, 0}):
                calls.add(each.record, each.count, each.total_ns)
        cpus = self.machine.cpus
        if callers < 2 or (cpus and callers * pool <= cpus):
            return
        left = f"; {self.machine.cpus_left}" if cpus else ""
        yield self.finding(
            "high" if cpus else "low",
            f"MKL was called from {callers} threads of a parallel region (TID), with up to {pool}"
            f" threads each: {callers * pool} in all{left}: {took(calls.total_ns)},"
            f" {percent(self.share(calls.total_ns))} of the time",
            calls,
        )

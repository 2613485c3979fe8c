"""What numbers of threads reveal: too many, too few, and callers that each have a pool."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from math import ceil, inf

from mlbackends.base.errors import counted
from mlbackends.model.trace import GraphPartition, Header, Info, MklCall, Record, Ukernel
from mlbackends.tracing.finder import (
    Calls,
    Finder,
    Found,
    Sum,
    is_on_gpu,
    percent,
    pool_of,
    shown,
    took,
)
from mlbackends.tracing.numbers import whole_number

#: Calls below would gain nothing by more threads.
_LONG_NS = 50_000
_LEAST_SHARE = 0.1
_TIMES_FEWER = 2
_LEAST_NS = 1e7
_LEAST_CALLERS = 1.5
_TIMES_MORE = 1.25
#: The threads of a call of oneDNN: those of its process.
_OF_PROCESS = -1
Place = tuple[str, int | None]


class ThreadCount(Finder):
    """The libraries had more threads than CPUs, or far fewer than there are cores.

    oneDNN's header has its number of threads (nthr), each call of MKL the number that it may use (NThr).

    The threads of each process are compared with each other and with the machine.
    """

    WANTS = frozenset(("notes",))

    def begin(self) -> None:
        self._lines: dict[int, str] = {}
        self._layers: set[str] = set()
        self._headers: Counter[str] = Counter()

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Info) and (pool := whole_number(record.values.get("nthr", ""))):
            self._lines.setdefault(pool, shown(record))
        elif isinstance(record, Header):
            self._headers[record.tracer] += count
            if record.tracer == "mkl":
                self._layers.add(record.facts.get("threading", ""))

    def result(self) -> Found:
        used: dict[str, tuple[int, str]] = {}
        callers: set[tuple[str, int | None, int | None]] = set()
        pools: defaultdict[Place, list[tuple[int, Calls]]] = defaultdict(list)
        for calls in self.calls:
            if calls.is_on_gpu:
                continue
            place = calls.record.source, calls.record.process
            callers |= {(*place, thread) for thread in calls.threads}
            library = "MKL" if isinstance(calls.record, MklCall) else "oneDNN"
            count = calls.pool or int(library == "MKL" and self._layers == {"sequential"})
            if count:
                pools[place].append((count, calls))
                line = self._lines.get(count, "") if library == "oneDNN" else shown(calls.record)
                used[library] = max(used.get(library, (0, "")), (count, line))
        # Each process has a header, also where its number is not known.
        processes = max(self._headers.values(), default=0)
        yield from self._against_machine(used, max(len(callers), processes))
        for place, pairs in pools.items():
            if place[1] is not None or processes < 2:
                yield from self._against_each_other(pairs)

    def _against_machine(self, used: dict[str, tuple[int, str]], callers: int) -> Found:
        machine = self.machine
        most = max((count for count, _ in used.values()), default=0)
        named = " and ".join(
            f"{name} had {counted(count, 'thread')}"
            for name, (count, _) in sorted(used.items(), reverse=True)
            if count
        )
        # Ranks of one launcher run at the same time.
        ranks = len({call.record.source for call in self.calls if call.record.prefix}) or 1
        named += f" in each of {ranks} ranks" if ranks > 1 else ""
        long_ns = sum(call.total_ns for call in self.calls if call.median_ns >= _LONG_NS)
        is_heavy = most > 0 and long_ns >= max(_LEAST_NS, _LEAST_SHARE * self.all_ns)
        severity = seen = why = ""
        if machine.cpus and most * ranks > ceil(machine.cpus):
            severity = "high" if most * ranks >= 2 * machine.cpus else "medium"
            seen = f"{named}; {machine.cpus_left}"
            why = self.TEXTS["shared"]
        elif is_heavy and most * callers * _TIMES_FEWER <= machine.cores:
            severity = "medium"
            seen = (
                f"{named}, called from {counted(callers, 'thread')}; {machine.cpus_left}, which is"
                f" {counted(machine.cores, 'core')}"
            )
            why = "most of the machine was idle while these calls ran"
        elif is_heavy and not machine.cpus and most == callers == 1:
            severity = "note"
            seen = f"{named}: all ran on one CPU, {took(long_ns)} in calls of {took(_LONG_NS)} or more"
            why = "the trace does not record the number of CPUs; --this-machine compares"
        if severity:
            yield self.finding(
                severity,
                seen,
                why=why,
                evidence=tuple(line for _, line in used.values()),
                count=self.all_count,
                total_ns=self.all_ns,
                share=self.share(self.all_ns),
            )

    def _against_each_other(self, pairs: list[tuple[int, Calls]]) -> Found:
        """Yield a finding where MKL may use fewer threads in long calls than elsewhere in a process."""
        most, others = max(pairs, key=lambda pair: pair[0])
        few = [
            (pool, calls)
            for pool, calls in pairs
            if pool * _TIMES_FEWER <= most and isinstance(calls.record, MklCall)
        ]
        # Several callers are a parallel region, in which each call has one thread, as it should.
        if len({thread for _, calls in few for thread in calls.threads}) != 1:
            return
        fewer = Sum(4)
        for _, calls in few:
            fewer.add(calls.record, calls.count, calls.total_ns)
        share = self.share(fewer.total_ns)
        if fewer.total_ns >= _LONG_NS * fewer.count and share >= _LEAST_SHARE:
            source = "other calls" if isinstance(others.record, MklCall) else "oneDNN"
            yield self.finding(
                "low",
                f"MKL had {counted(min(pool for pool, _ in few), 'thread')} in"
                f" {counted(fewer.count, 'call')}, {percent(share)} of the time; {source} had {most} in"
                " the same process",
                fewer,
                why="a variable, a setting of the program or a nested call gave them fewer threads",
            )


class ConcurrentCallers(Finder):
    """Concurrent callers each used their own thread pool: together more threads than CPUs.

    The time of all calls is compared with the time that passed, where calls have stamps. Of MKL without
    stamps: calls from several threads of one parallel region that may use several each. Only OpenMP gives
    each caller a pool; TBB's, SYCL's and frameworks' own are shared.
    """

    WANTS = frozenset(("work", "uncounted", "notes"))

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

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
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
            sums = [item for item in self._busy.items() if item[0][0][0] == source]
            yield from self._at_once(sums, last - first)
        nested: defaultdict[tuple[str, int], list[Calls]] = defaultdict(list)
        for calls in self.calls:
            # A process is known where a capture put its own numbers of threads.
            if isinstance(calls.record, MklCall) and calls.record.process is None and calls.pool > 1:
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
        advice = sum(busy.total_ns * pool for busy, pool in zip(calls, pools, strict=True)) / wall_ns
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
            f"{callers:.1f} calls{of} ran at the same time, each with up to {counted(most, 'thread')}: about"
            f" {advice:.1f} in total; {left}",
            why=why,
            evidence=self.lines_of(*calls)[:4],
            count=sum(busy.count for busy in calls),
            total_ns=busy_ns,
        )

    def _nested(self, pool: int, group: list[Calls]) -> Found:
        threads = {thread for calls in group for thread in calls.threads if thread}
        callers = 1 + max(threads, default=0)
        nested = Sum(2)
        for calls in group:
            if any(calls.threads - {None, 0}):
                nested.add(calls.record, calls.count, calls.total_ns)
        cpus = self.machine.cpus
        if callers < 2 or (cpus and callers * pool <= cpus):
            return
        left = f"; {self.machine.cpus_left}" if cpus else ""
        yield self.finding(
            "high" if cpus else "low",
            f"MKL was called from {callers} threads of a parallel region (TID), with up to {pool}"
            f" threads each: {callers * pool} in total{left}: {self.time_of(nested)}",
            nested,
        )

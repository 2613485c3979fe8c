"""The libraries had more threads than CPUs, or far fewer than there are cores.

oneDNN's header has its number of threads (nthr), each call of MKL the number that it may use (NThr).
"""

from collections import Counter, defaultdict
from math import ceil

from mlbackends.model.trace import Header, Info, MklCall, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Calls, Found, Sum, percent, shown, times, took
from mlbackends.tracing.numbers import whole_number

#: Calls below would gain nothing by more threads.
_LONG_NS = 50_000
_LEAST_SHARE = 0.1
_TIMES_FEWER = 2
_LEAST_NS = 1e7
Place = tuple[str, int | None]


class Finder(finder.Finder):
    """Keeps the threads of each process, and compares them with each other and with the machine."""

    WANTS = frozenset(("notes",))
    ACTION = (
        "look at OMP_NUM_THREADS and MKL_NUM_THREADS, torch.set_num_threads, the affinity mask and the"
        " quota of the traced program; one thread per available core is usual"
    )

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
            f"{name} had {times(count, 'thread')}"
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
            why = (
                "threads that share a CPU wait for each other at each barrier of a parallel loop, and a"
                " quota stops all of them at once"
            )
        elif is_heavy and most * callers * _TIMES_FEWER <= machine.cores:
            severity = "medium"
            seen = (
                f"{named}, called from {times(callers, 'thread')}; {machine.cpus_left}, which is"
                f" {times(machine.cores, 'core')}"
            )
            why = "most of the machine was idle while these calls ran"
        elif is_heavy and not machine.cpus and most == callers == 1:
            severity = "note"
            seen = (
                f"{named}: all ran on one CPU, {took(long_ns)} in calls of {took(_LONG_NS)} or more"
            )
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
        most, most_of = max(pairs, key=lambda pair: pair[0])
        few = [
            (pool, calls)
            for pool, calls in pairs
            if pool * _TIMES_FEWER <= most and isinstance(calls.record, MklCall)
        ]
        # Several callers are a parallel region, in which each call has one thread, as it should.
        if len({thread for _, calls in few for thread in calls.threads}) != 1:
            return
        found = Sum(4)
        for _, calls in few:
            found.add(calls.record, calls.count, calls.total_ns)
        share = self.share(found.total_ns)
        if found.total_ns >= _LONG_NS * found.count and share >= _LEAST_SHARE:
            source = "other calls" if isinstance(most_of.record, MklCall) else "oneDNN"
            yield self.finding(
                "low",
                f"MKL had {times(min(pool for pool, _ in few), 'thread')} in"
                f" {times(found.count, 'call')}, {percent(share)} of the time; {source} had {most} in"
                " the same process",
                found,
                why="a variable, a setting of the program or a nested call gave them fewer threads",
            )

"""What a trace reveals: each class in the files of findings/ looks for one thing."""

from collections import Counter
from collections.abc import Sequence
from typing import cast

from mlbackends.base.errors import UnknownName
from mlbackends.model.trace import Call, Header, Info, Record
from mlbackends.model.trace_views import Finding, Findings
from mlbackends.tracing.finder import KINDS, SEVERITIES, Calls, Finder, finders, pool_of
from mlbackends.tracing.machine import UNKNOWN, Machine
from mlbackends.tracing.numbers import whole_number
from mlbackends.tracing.walk import Follower

#: The number of runs of one place that are kept apart; later ones are combined to save memory.
_MOST_RUNS = 64
_LEAST_SHARE = 0.01


class Collector:
    """Asks every finder, or those of these codes. machine: the one that the trace is of, if known.

    Raises UnknownName for an unknown finding.
    """

    def __init__(self, codes: tuple[str, ...] = (), machine: Machine = UNKNOWN) -> None:
        known = finders()
        if unknown := next((code for code in codes if code not in known), ""):
            raise UnknownName("finding", unknown, tuple(known))
        self._finders = {code: known[code](machine) for code in codes or known}
        self._by_kind = {
            kind: [finder for finder in self._finders.values() if kind in finder.WANTS] for kind in KINDS
        }
        self._adders = {kind: [finder.add for finder in wanting] for kind, wanting in self._by_kind.items()}
        self._followed = {
            kind: [finder.follow for finder in wanting if type(finder).follow is not Finder.follow]
            for kind, wanting in self._by_kind.items()
        }
        self._calls: dict[tuple[str, int | None, int, str], Calls] = {}
        self._runs: Counter[tuple[str, int | None, str]] = Counter()
        self._pools: dict[tuple[str, int | None], int] = {}
        self._count = 0
        self._total_ns = 0.0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if record.counted:
            self._count += 1
            self._total_ns += record.duration_ns or 0.0
            key = self._key(record)
            calls = self._calls.get(key)
            if calls is None:
                pool = pool_of(record, self._pools.get(key[:2], 0))
                calls = self._calls[key] = Calls(cast("Call", record), pool)
            calls.add(record)
        elif isinstance(record, Header):
            self._runs[record.source, record.process, record.tracer] += 1
        elif isinstance(record, Info) and (count := whole_number(record.values.get("nthr", ""))):
            self._pools[record.source, record.process] = count
        for add in self._adders[_kind(record)]:
            add(record)

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls of one thread that are equal to one that was added."""
        if record.counted:
            self._count += count
            self._total_ns += sum(durations)
            calls = self._calls[self._key(record)]
            calls.later.add_many(len(durations), durations)
            calls.untimed += count - len(durations)
        for finder in self._by_kind[_kind(record)]:
            finder.add_many(record, count, durations)

    def _key(self, record: Record) -> tuple[str, int | None, int, str]:
        """Return what equal calls share: a header begins another run of its library."""
        source, process = record.source, record.process
        run = min(self._runs[source, process, record.tracer], _MOST_RUNS)
        return source, process, run, record.key

    def follow(self, record: Record) -> Follower | None:
        """Return what takes each later call that is equal to one that was added."""
        steps = [step for follow in self._followed[_kind(record)] if (step := follow(record))]

        def take(_: bytes, __: int, duration: float | None, ___: int | None) -> None:
            for step in steps:
                step(duration or 0.0)

        return take if steps else None

    def result(self) -> Findings:
        """Return what was found, the worst first, and of those alike what takes longest."""
        findings: list[tuple[bool, Finding]] = []
        for finder in self._finders.values():
            finder.calls = tuple(self._calls.values())
            finder.all_count, finder.all_ns = self._count, self._total_ns
            findings += (
                (not finder.GOES_FIRST, finding)
                for finding in finder.result()
                # What takes less than 1% of the time is worth a line only if it matters otherwise.
                if finding.severity not in ("low", "note") or not 0 < (finding.share or 0.0) < _LEAST_SHARE
            )

        def place(item: tuple[bool, Finding]) -> tuple[bool, int, float, str]:
            comes_later, finding = item
            return comes_later, SEVERITIES.index(finding.severity), -finding.total_ns, finding.code

        ordered = sorted(findings, key=place)
        return Findings(codes=tuple(self._finders), findings=tuple(finding for _, finding in ordered))


def _kind(record: Record) -> str:
    if record.counted:
        return "work"
    return "uncounted" if isinstance(record, Call) else "notes"

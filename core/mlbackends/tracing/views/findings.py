"""What a trace gives away: each file of findings/ looks for one thing."""

from collections import Counter
from collections.abc import Sequence
from typing import cast

from mlbackends.base import registry
from mlbackends.model.trace import Call, Header, Info, Record
from mlbackends.model.trace_views import Finding, Findings
from mlbackends.tracing.finder import KINDS, SEVERITIES, Calls, Finder, pool_of
from mlbackends.tracing.machine import UNKNOWN, Machine
from mlbackends.tracing.numbers import whole_number
from mlbackends.tracing.walk import Follower

REGISTRY = "mlbackends.tracing.findings"
#: The number of runs of one place that are kept apart; later ones are combined to save memory.
_MOST_RUNS = 64


class Collector:
    """Asks every finder, or those of these codes. machine: the one that the trace is of, if known.

    Raises UnknownName for an unknown finding.
    """

    def __init__(self, codes: tuple[str, ...] = (), machine: Machine = UNKNOWN) -> None:
        names = [code.replace("-", "_") for code in codes] or registry.names(REGISTRY)
        self._watches: dict[str, Finder] = {
            name.replace("_", "-"): registry.load(REGISTRY, name).Finder(machine) for name in names
        }
        self._by_kind = {
            kind: [watch for watch in self._watches.values() if kind in watch.WANTS]
            for kind in KINDS
        }
        self._adders = {kind: [each.add for each in found] for kind, found in self._by_kind.items()}
        self._followed = {
            kind: [each.follow for each in found if type(each).follow is not Finder.follow]
            for kind, found in self._by_kind.items()
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

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls of one thread that are equal to one that was added, and began after it ended."""
        if record.counted:
            self._count += count
            self._total_ns += sum(durations)
            calls = self._calls[self._key(record)]
            calls.later.add_many(len(durations), durations)
            calls.untimed += count - len(durations)
        for watch in self._by_kind[_kind(record)]:
            watch.add_more(record, count, durations)

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
        found: list[tuple[bool, Finding]] = []
        for watch in self._watches.values():
            watch.calls = tuple(self._calls.values())
            watch.all_count, watch.all_ns = self._count, self._total_ns
            found += ((watch.GOES_FIRST, one) for one in watch.result())

        def place(each: tuple[bool, Finding]) -> tuple[bool, int, float, str]:
            is_first, one = each
            return not is_first, SEVERITIES.index(one.severity), -one.total_ns, one.code

        return Findings(
            codes=tuple(self._watches), findings=tuple(one for _, one in sorted(found, key=place))
        )


def _kind(record: Record) -> str:
    if record.counted:
        return "work"
    return "uncounted" if isinstance(record, Call) else "notes"

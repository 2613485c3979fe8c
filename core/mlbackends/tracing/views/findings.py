"""What a trace gives away: each file of findings/ looks for one thing."""

from collections.abc import Sequence

from mlbackends.model import registry
from mlbackends.model.trace import Call, Record
from mlbackends.model.trace_views import Finding, Findings
from mlbackends.tracing.finder import KINDS, SEVERITIES, Finder
from mlbackends.tracing.walk import Follower

REGISTRY = "mlbackends.tracing.findings"


class Collector:
    """Asks every finder, or those of these codes. capability: the processor's, see `Finder`.

    Raises UnknownName where there is no such finding.
    """

    def __init__(self, codes: tuple[str, ...] = (), capability: str = "") -> None:
        names = [code.replace("-", "_") for code in codes] or registry.names(REGISTRY)
        self._watches: dict[str, Finder] = {
            name.replace("_", "-"): registry.load(REGISTRY, name).Finder(capability)
            for name in names
        }
        self._by_kind = {
            kind: [watch for watch in self._watches.values() if kind in watch.WANTS]
            for kind in KINDS
        }
        self._adders = {kind: [each.add for each in found] for kind, found in self._by_kind.items()}
        self._count = 0
        self._total_ns = 0.0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if record.counted:
            self._count += 1
            self._total_ns += record.duration_ns or 0.0
        for add in self._adders[_kind(record)]:
            add(record)

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added."""
        if record.counted:
            self._count += count
            self._total_ns += sum(durations)
        for watch in self._by_kind[_kind(record)]:
            watch.add_more(record, count, durations)

    def follow(self, record: Record) -> tuple[Follower, ...]:
        """Return what takes each later call that is equal to one that was added."""
        found = (watch.follow(record) for watch in self._by_kind[_kind(record)])
        return tuple(each for each in found if each is not None)

    def result(self) -> Findings:
        """Return what was found, the worst first, and of those alike what takes longest."""
        found: list[Finding] = []
        for watch in self._watches.values():
            watch.all_count, watch.all_ns = self._count, self._total_ns
            found += watch.result()
        found.sort(key=lambda one: (SEVERITIES.index(one.severity), -one.total_ns, one.code))
        return Findings(asked=tuple(self._watches), found=tuple(found))


def _kind(record: Record) -> str:
    if record.counted:
        return "work"
    return "uncounted" if isinstance(record, Call) else "notes"

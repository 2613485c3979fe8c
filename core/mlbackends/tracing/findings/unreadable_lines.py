"""Lines that begin as a library's could not be read: torn, or of a version not known here."""

from collections import Counter

from mlbackends.model.trace import Malformed, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Evidence, Whole, times


class Finder(finder.Finder):
    """Counts them by reason."""

    WANTS = frozenset(("notes",))

    def begin(self) -> None:
        self._reasons: Counter[str] = Counter()
        self._evidence = Evidence()

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Malformed):
            self._reasons[record.reason] += count  # the reader has two
            self._evidence.add(record)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if there are any."""
        count = self._reasons.total()
        if not count:
            return []
        reason, most = self._reasons.most_common(1)[0]
        return [
            self.finding(
                "medium" if count > whole.count / 100 else "low",
                f"{times(count, 'line')} could not be read; most often ({most:,}): {reason}",
                why="their time is in no total",
                action="list them with --where kind=malformed; a torn last line means a killed program",
                evidence=self._evidence.lines,
                count=count,
            )
        ]

"""Lines that begin as a library's could not be read: torn, or of a version not known here."""

from mlbackends.model.trace import Malformed, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.finder import Evidence, Machine, Whole, times


class Finder:
    """Counts them by reason."""

    WANTS = frozenset(("notes",))

    def __init__(self, machine: Machine) -> None:
        del machine
        self._reasons: dict[str, int] = {}
        self._evidence = Evidence()
        self._others = 0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, Malformed):
            if record.reason in self._reasons or len(self._reasons) < 100:
                self._reasons[record.reason] = self._reasons.get(record.reason, 0) + 1
            else:
                self._others += 1
            self._evidence.add(record)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one, if there are any."""
        count = sum(self._reasons.values()) + self._others
        if not count:
            return []
        reason, most = max(self._reasons.items(), key=lambda item: item[1])
        return [
            Finding(
                code="unreadable-lines",
                severity="medium" if count > whole.count / 100 else "low",
                seen=f"{times(count, 'line')} could not be read; most often ({most:,}): {reason}",
                why="what they told is in no total",
                action="list them with --where kind=malformed; a torn last line means a killed program",
                evidence=self._evidence.lines,
                count=count,
            )
        ]

"""Lines that begin as a library's could not be read: truncated, or of a version not known here."""

from mlbackends.model.trace import Malformed, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, times


class Finder(finder.Finder):
    """Counts them by reason."""

    WANTS = frozenset(("notes",))
    WHY = "their time is not counted"
    ACTION = "list them with --list-malformed; a truncated last line means a killed program"
    LINES = 3

    def key(self, record: Record) -> str | None:
        return record.reason if isinstance(record, Malformed) else None  # the reader has two

    def result(self) -> Found:
        if self.sums:
            count = sum(each.count for each in self.sums.values())
            reason, most = max(self.sums.items(), key=lambda item: item[1].count)
            yield self.finding(
                "medium" if count > self.all_count / 100 else "low",
                f"{times(count, 'line')} could not be read; most often ({most.count:,}): {reason}",
                evidence=tuple(line for each in self.sums.values() for line in each.lines)[:3],
                count=count,
            )

"""Why oneDNN did not take its faster implementations. It tries them in order, the fastest first."""

from collections import Counter
from collections.abc import Sequence

from mlbackends.model.trace import Dispatch, Primitive, Record
from mlbackends.model.trace_views import DispatchView, Refusal, Refused

_MOST = 20_000


class Collector:
    """Counts refusals by operation, implementation, reason and place in the source.

    operation: only that of this one. Needs lines that oneDNN prints at level "dispatch".
    """

    def __init__(self, operation: str = "") -> None:
        self._only = operation
        self._counts: dict[str, dict[tuple[str, str, str], int]] = {}
        self._chosen: dict[str, Counter[str]] = {}
        self._count = self._left_out = 0

    def add(self, record: Record) -> None:
        """Take in one record."""
        self.add_many(record, 1)

    def add_many(self, record: Record, count: int, durations: Sequence[float] = ()) -> None:
        """Take in equal lines at once."""
        del durations
        if self._only and record.operation != self._only:
            return
        operation = record.operation
        if isinstance(record, Dispatch):
            self._count += count
            counts = self._counts.setdefault(operation, {})
            refusal = (record.implementation.strip(), record.reason.strip(), record.place)
            if refusal not in counts and sum(map(len, self._counts.values())) >= _MOST:
                self._left_out += 1
            else:
                counts[refusal] = counts.get(refusal, 0) + count
        elif isinstance(record, Primitive) and record.event == "create":
            self._chosen.setdefault(operation, Counter())[record.implementation] += count

    def result(self) -> DispatchView:
        """Return the refusals, the operation with most of them first."""
        operations = [
            Refused(
                operation=operation,
                count=sum(counts.values()),
                refusals=tuple(
                    Refusal(
                        # Lines without a name have the file of oneDNN's source at least.
                        implementation=name or place.replace("\\", "/").rpartition("/")[2].partition(".")[0],
                        reason=reason,
                        place=place,
                        count=n,
                    )
                    for (name, reason, place), n in counts.items()
                ),
                chosen=tuple(self._chosen.get(operation, Counter()).most_common()),
            )
            for operation, counts in self._counts.items()
        ]
        operations.sort(key=lambda operation: -operation.count)
        return DispatchView(operations=tuple(operations), count=self._count, left_out=self._left_out)

"""Two traces side by side: what became slower, what faster, what is new and what is gone."""

from collections.abc import Iterable, Sequence

from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.trace import Record
from mlbackends.model.trace_views import Change, Difference, SummaryRow
from mlbackends.tracing.groups import Group, Groups

BY = ("tracer", "operation", "shape", "dtype", "asked")
"""What the program requested: calls that differ in it, as forward and backward, have times of their own."""
MEASURES = {
    "total": lambda row: row.total_ns,
    "mean": lambda row: row.mean_ns,
    "median": lambda row: row.median_ns,
    "min": lambda row: row.min_ns,
}


class Collector:
    """Groups two traces, `before` and `after`; add() adds to what comes after.

    by: fields; without the implementation, so that a call is found again when another version takes
    another one. measure: what is compared, see MEASURES. threshold: from which ratio on a call is slower,
    or below whose reciprocal faster; 1.1 is ten percent. smallest_share: calls that take less of the time
    in both traces are noise. whole_threshold: from which ratio of the whole times it fails too; 0: never.
    """

    def __init__(
        self,
        by: tuple[str, ...] = BY,
        measure: str = "median",
        threshold: float = 1.1,
        smallest_share: float = 0.01,
        whole_threshold: float = 0.0,
    ) -> None:
        if measure not in MEASURES:
            raise UnknownName("measure", measure, tuple(MEASURES))
        if not 1 <= threshold < float("inf"):
            raise BadInput(f"a threshold of {threshold} means nothing", "such as 1.1, ten percent")
        if whole_threshold and not 1 <= whole_threshold < float("inf"):
            raise BadInput(f"a threshold of {whole_threshold} means nothing", "such as 1.1")
        if not 0 <= smallest_share <= 1:
            raise BadInput(f"a share of {smallest_share} means nothing", "from 0 to 1")
        self._measure, self._threshold = measure, threshold
        self._smallest, self._whole_threshold = smallest_share, whole_threshold
        self.before, self.after = Groups(by), Groups(by)

    def add(self, record: Record) -> None:
        """Take in one record of the second trace."""
        self.after.add(record)

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in equal calls of the second trace at once."""
        self.after.add_many(record, count, durations)

    def result(self) -> Difference:
        """Return the changes, those that cost most first."""
        before, after = self.before, self.after
        changes = [
            self._change(values, before.groups.get(values), after.groups.get(values))
            for values in dict.fromkeys([*before.groups, *after.groups])
        ]
        changes.sort(key=lambda one: (_ORDER.index(one.verdict), -_moved(one), one.values))
        ratio = after.total_ns / before.total_ns if before.total_ns else None
        slower = any(one.verdict == "slower" for one in changes)
        whole = bool(self._whole_threshold and ratio and ratio >= self._whole_threshold)
        return Difference(
            by=before.by,
            measure=self._measure,
            threshold=self._threshold,
            smallest_share=self._smallest,
            before_ns=before.total_ns,
            after_ns=after.total_ns,
            before_count=before.count,
            after_count=after.count,
            ratio=ratio,
            changes=tuple(changes),
            failed=slower or whole,
        )

    def _change(self, values: tuple[str, ...], before: Group | None, after: Group | None) -> Change:
        left = before.row(values, self.before.total_ns) if before else None
        right = after.row(values, self.after.total_ns) if after else None
        ratio = self._ratio(left, right)
        return Change(
            values=values,
            verdict=self._verdict(left, right, ratio),
            before=left,
            after=right,
            ratio=ratio,
            implementation_before=before.record.implementation if before else "",
            implementation_after=after.record.implementation if after else "",
        )

    def _ratio(self, before: SummaryRow | None, after: SummaryRow | None) -> float | None:
        if before is None or after is None:
            return None
        old, new = MEASURES[self._measure](before), MEASURES[self._measure](after)
        return new / old if old and new is not None else None

    def _verdict(
        self, before: SummaryRow | None, after: SummaryRow | None, ratio: float | None
    ) -> str:
        if before is None:
            return "new"
        if after is None:
            return "gone"
        if ratio is None or 1 / self._threshold < ratio < self._threshold:
            return "same"
        if max(before.share, after.share) < self._smallest:
            return "noise"
        return "slower" if ratio >= self._threshold else "faster"


_ORDER = ("slower", "faster", "new", "gone", "noise", "same")


def _moved(change: Change) -> float:
    """Return how much time a change moved, either way."""
    before = change.before.total_ns if change.before else 0.0
    after = change.after.total_ns if change.after else 0.0
    return abs(after - before)


def compare(before: Iterable[Record], after: Iterable[Record], **options: object) -> Difference:
    """Return how two traces differ; options are those of Collector."""
    collector = Collector(**options)  # type: ignore[arg-type]
    for record in before:
        collector.before.add(record)
    for record in after:
        collector.add(record)
    return collector.result()

"""Which calls took the time: in groups, with their times and rates."""

from msgspec.structs import replace

from mlbackends.model.trace_views import Summary
from mlbackends.tracing.groups import Group, Groups

BY = ("tracer", "operation", "implementation", "dtype")


class Collector(Groups):
    """Groups calls.

    by: fields, see `fields.NAMES`. top: the number of rows, 0 for all. of: see `groups.OF`.
    """

    def __init__(self, by: tuple[str, ...] = BY, top: int = 0, of: str = "work") -> None:
        super().__init__(by, of, top)

    def result(self) -> Summary:
        """Return the groups, those that took longest first."""
        ordered = self.sorted()
        shown = ordered[: self.top] if self.top else ordered
        rows = []
        cumulative = 0.0
        for values, group in shown:
            cumulative += group.tally.total
            share = cumulative / self.total_ns if self.total_ns else 0.0
            row = group.row(values, self.total_ns)
            rows.append(replace(row, cumulative_share=min(1.0, share)))
        others = None
        if left := [group for _, group in ordered[len(shown) :]]:
            rest = Group(left[0].record)
            for group in left:
                rest.add(group)
            row = rest.row((), self.total_ns)
            others = replace(row, cumulative_share=1.0, median_ns=None, deviation=None)
        return Summary(
            by=self.by,
            count=self.count,
            total_ns=self.total_ns,
            groups=len(ordered),
            rows=tuple(rows),
            others=others,
            uncounted=self.uncounted(),
        )

"""Which calls took the time: in groups, with their times and rates."""

from msgspec.structs import replace

from mlbackends.model.trace_views import Summary, SummaryRow
from mlbackends.tracing.groups import Group, Groups

BY = ("tracer", "operation", "implementation", "dtype")


class Collector(Groups):
    """Groups calls.

    by: fields, see `fields.NAMES`. top: so many groups get a row, 0 is all. of: see `groups.OF`.
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
        return Summary(
            by=self.by,
            count=self.count,
            total_ns=self.total_ns,
            groups=len(ordered),
            rows=tuple(rows),
            others=self._rest([group for _, group in ordered[len(shown) :]]),
            uncounted=self.uncounted(),
        )

    def _rest(self, left: list[Group]) -> SummaryRow | None:
        if not left:
            return None
        total = sum(group.tally.total for group in left)
        timed = sum(len(group.tally.times) for group in left)
        extremes = [
            (min(group.tally.times), max(group.tally.times)) for group in left if group.tally.times
        ]
        flops_ns = sum(group.flops_ns for group in left)
        traffic_ns = sum(group.traffic_ns for group in left)
        return SummaryRow(
            values=(),
            count=sum(group.tally.count for group in left),
            total_ns=total,
            share=total / self.total_ns if self.total_ns else 0.0,
            cumulative_share=1.0,
            mean_ns=total / timed if timed else None,
            min_ns=min((least for least, _ in extremes), default=None),
            max_ns=max((most for _, most in extremes), default=None),
            gflops=sum(group.flops for group in left) / flops_ns if flops_ns else None,
            gigabytes_per_second=(
                sum(group.traffic for group in left) / traffic_ns if traffic_ns else None
            ),
        )

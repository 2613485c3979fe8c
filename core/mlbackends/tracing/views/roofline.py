"""Work against traffic: the operations a byte of each call, and how many of them a second it reached."""

from collections.abc import Sequence

from mlbackends.model.trace import Record
from mlbackends.model.trace_views import Roof, Roofline, RooflinePoint
from mlbackends.tracing.groups import Groups


class Collector(Groups):
    """Groups calls by operation, shape, types and implementation. top: the number of points, 0 for all.

    roof: the speeds of the machine that the trace is of, if they were measured.
    """

    def __init__(self, top: int = 300, roof: Roof | None = None) -> None:
        self._roof = roof
        super().__init__(("operation", "shape", "dtype", "implementation"), top=top)
        self._left_out = 0

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in equal calls at once."""
        if record.counted and not (record.gflops and record.bytes):
            self._left_out += count
        else:
            super().add_many(record, count, durations)

    def result(self) -> Roofline:
        """Return a point for each group, those that took longest first."""
        points = []
        for values, group in self.sorted():
            if not (group.flops and group.traffic):
                continue
            points.append(
                RooflinePoint(
                    **dict(zip(self.by, values, strict=True)),
                    count=group.tally.count,
                    total_ns=group.tally.total,
                    intensity=group.flops / group.traffic,
                    gflops=group.flops / group.flops_ns,
                    gigabytes_per_second=group.traffic / group.traffic_ns,
                )
            )
        shown = points[: self.top] if self.top else points
        return Roofline(points=tuple(shown), groups=len(points), left_out=self._left_out, roof=self._roof)

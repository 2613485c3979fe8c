"""When which operation ran, in stretches of equal length that grow with the trace."""

from collections import Counter
from math import ceil

from mlbackends.base.errors import BadInput
from mlbackends.model.trace import Record
from mlbackends.model.trace_views import Lane, Span, Timeline
from mlbackends.tracing.lanes import Placing, lane_name

_FIRST_WIDTH_NS = 1024


class Collector:
    """Adds up, in each stretch of each lane, the time of each operation.

    spans: the largest number of stretches; beyond it, two become one. lanes: the largest number of
    threads.
    Only work that is counted is drawn: what it encloses or is enclosed by would be there twice.
    """

    def __init__(self, spans: int = 240, lanes: int = 64) -> None:
        # Times before and after the first call's start are never in one stretch.
        if spans < 2 or lanes < 1:
            raise BadInput("a timeline needs at least two stretches and one lane")
        self._most = spans
        self._placing = Placing(lanes)
        self._width = _FIRST_WIDTH_NS
        self._busy: dict[int, dict[int, Counter[str]]] = {}
        self._counts: Counter[int] = Counter()
        self._first: int | None = None
        self._last_ns = self._last = 0
        self._synthetic = self._stamped = 0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if not record.counted:
            return
        placed = self._placing.place(record)
        if placed is None:
            return
        lane, start, duration = (
            self._placing.lanes[placed.lane],
            placed.start_ns,
            placed.duration_ns,
        )
        self._synthetic += placed.synthetic
        self._stamped += not placed.synthetic
        self._counts[lane] += 1
        end = start + ceil(duration)
        self._last_ns = end if self._first is None else max(self._last_ns, end)
        first, last = start // self._width, end // self._width
        if self._first is not None:
            first, last = min(first, self._first), max(last, self._last)
        while last - first >= self._most:
            # Two stretches become one.
            self._width *= 2
            first, last = first >> 1, last >> 1
            for drawn, spans in self._busy.items():
                wider: dict[int, Counter[str]] = {}
                for number, worked in spans.items():
                    wider.setdefault(number >> 1, Counter()).update(worked)
                self._busy[drawn] = wider
        self._first, self._last = first, last
        spans = self._busy.setdefault(lane, {})
        for number in range(start // self._width, end // self._width + 1):
            # Since the call began: of a stamp as a fraction, nanoseconds would be lost.
            ahead = number * self._width - start
            inside = float(min(duration, ahead + self._width) - max(0, ahead))
            if inside > 0 or start == end:
                spans.setdefault(number, Counter())[record.operation] += inside  # type: ignore[assignment]

    def result(self) -> Timeline:
        """Return the lanes in the order in which they began."""
        names = {number: lane_name(lane) for lane, number in self._placing.lanes.items()}
        origin = (self._first or 0) * self._width
        lanes = []
        for number, spans in sorted(self._busy.items()):
            drawn = tuple(
                Span(
                    start_ns=place * self._width - origin,
                    busy_ns=sum(worked.values()),
                    by_operation=tuple(sorted(worked.items(), key=lambda item: (-item[1], item[0]))),
                )
                for place, worked in sorted(spans.items())
            )
            busy = sum(span.busy_ns for span in drawn)
            lanes.append(Lane(name=names[number], count=self._counts[number], busy_ns=busy, spans=drawn))
        return Timeline(
            width_ns=self._width,
            end_ns=self._last_ns - origin if lanes else 0,
            lanes=tuple(lanes),
            synthetic=bool(lanes) and not self._stamped,
            partly=bool(self._stamped and self._synthetic),
            skipped_lanes=len(self._placing.skipped),
        )

"""When which operation ran, in stretches of equal length that grow with the trace."""

import math

from mlbackends.model.errors import BadInput
from mlbackends.model.trace import Record
from mlbackends.model.trace_views import Lane, Span, Timeline
from mlbackends.tracing.lanes import Placing, lane_name

_FIRST_WIDTH_NS = 1024


class Collector:
    """Adds up, in each stretch of each lane, the time of each operation.

    spans: at most so many stretches; as the trace grows beyond them, two become one. lanes: at most so
    many threads.
    Only work that is counted is drawn: what it encloses or is enclosed by would be there twice.
    """

    def __init__(self, spans: int = 240, lanes: int = 64) -> None:
        # What lies before the first call's beginning and behind it are never one stretch.
        if spans < 2 or lanes < 1:
            raise BadInput("a timeline needs at least two stretches and one lane")
        self._most = spans
        self._placing = Placing(lanes)
        self._width = _FIRST_WIDTH_NS
        self._busy: dict[int, dict[int, dict[str, float]]] = {}
        self._counts: dict[int, int] = {}
        self._first: int | None = None
        self._first_ns = self._last_ns = 0
        self._last = 0
        self._synthetic = self._stamped = 0

    def add(self, record: Record) -> None:
        """Take in one record."""
        if not record.counted:
            return
        placed = self._placing.place(record)
        if placed is None:
            return
        self._synthetic += placed.synthetic
        self._stamped += not placed.synthetic
        lane = self._placing.lanes[placed.lane]
        self._counts[lane] = self._counts.get(lane, 0) + 1
        start, duration = placed.start_ns, placed.duration_ns
        end = start + math.ceil(duration)
        if self._first is None:
            self._first_ns, self._last_ns = start, end
        self._first_ns, self._last_ns = min(self._first_ns, start), max(self._last_ns, end)
        self._make_room(start, end)
        spans = self._busy.setdefault(lane, {})
        operation = record.operation
        for number in range(start // self._width, end // self._width + 1):
            # Since the call began: of a stamp as a fraction, nanoseconds would be lost.
            ahead = number * self._width - start
            inside = min(duration, ahead + self._width) - max(0, ahead)
            if inside > 0 or start == end:
                worked = spans.setdefault(number, {})
                worked[operation] = worked.get(operation, 0.0) + inside

    def _make_room(self, start: int, end: int) -> None:
        """Widen the stretches until all between the first and the last call have a number."""
        while True:
            first, last = start // self._width, end // self._width
            if self._first is not None:
                first, last = min(first, self._first), max(last, self._last)
            if last - first < self._most:
                self._first, self._last = first, last
                return
            self._width *= 2
            if self._first is not None:
                self._first, self._last = self._first >> 1, self._last >> 1
            for lane, spans in self._busy.items():
                wider: dict[int, dict[str, float]] = {}
                for number, worked in spans.items():
                    into = wider.setdefault(number >> 1, {})
                    for operation, busy in worked.items():
                        into[operation] = into.get(operation, 0.0) + busy
                self._busy[lane] = wider

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
                    by_operation=tuple(
                        sorted(worked.items(), key=lambda item: (-item[1], item[0]))
                    ),
                )
                for place, worked in sorted(spans.items())
            )
            busy = sum(span.busy_ns for span in drawn)
            lanes.append(
                Lane(name=names[number], count=self._counts[number], busy_ns=busy, spans=drawn)
            )
        return Timeline(
            width_ns=self._width,
            end_ns=self._last_ns - origin if lanes else 0,
            lanes=tuple(lanes),
            synthetic=bool(lanes) and not self._stamped,
            partly=bool(self._stamped and self._synthetic),
            skipped_lanes=len(self._placing.skipped),
        )

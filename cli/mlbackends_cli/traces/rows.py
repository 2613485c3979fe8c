"""The views of a trace as rows of numbers, for programs."""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import structs

from mlbackends.model.trace_views import (
    AnyView,
    Change,
    Difference,
    DispatchView,
    Finding,
    Findings,
    Refusal,
    Repro,
    Reproduction,
    Roofline,
    RooflinePoint,
    Summary,
    SummaryRow,
    Timeline,
)

Row = dict[str, Any]
_SPAN = ("lane", "start_ns", "width_ns", "operation", "busy_ns")


def rows_of(view: AnyView) -> list[Row]:
    """Return one row for each thing that a view lists; all rows have the same columns."""
    return list(_ROWS[type(view)](view))


def columns_of(view: AnyView) -> tuple[str, ...]:
    """Return the names of a view's columns, which it has without rows too."""
    empty = ("",) * len(getattr(view, "by", ()))
    if isinstance(view, Summary):
        return (*view.by, *_numbers(SummaryRow(values=empty, count=0)))
    if isinstance(view, Difference):
        return tuple(_change(view, Change(values=empty, verdict="")))
    if isinstance(view, Timeline):
        return _SPAN
    if isinstance(view, DispatchView):
        return ("operation", *Refusal.__struct_fields__)
    kinds = {Findings: Finding, Repro: Reproduction, Roofline: RooflinePoint}
    return kinds[type(view)].__struct_fields__


def _numbers(row: SummaryRow | None) -> Row:
    found = structs.asdict(row or SummaryRow(values=(), count=0))
    del found["values"]
    return found if row else dict.fromkeys(found) | {"count": 0}


def _change(view: Difference, change: Change) -> Row:
    numbers = {
        f"{when}_{name}": value
        for when, row in (("before", change.before), ("after", change.after))
        for name, value in _numbers(row).items()
        if name != "cumulative_share"
    }
    return {
        "verdict": change.verdict,
        **dict(zip(view.by, change.values, strict=True)),
        "ratio": change.ratio,
        "implementation_before": change.implementation_before,
        "implementation_after": change.implementation_after,
        **numbers,
    }


def _timeline(view: Timeline) -> Iterator[Row]:
    for lane in view.lanes:
        for span in lane.spans:
            for operation, busy_ns in span.by_operation:
                values = (lane.name, span.start_ns, view.width_ns, operation, busy_ns)
                yield dict(zip(_SPAN, values, strict=True))


_ROWS: dict[type, Callable[[Any], Iterator[Row]]] = {
    Summary: lambda view: (
        dict(zip(view.by, row.values, strict=True)) | _numbers(row) for row in view.rows
    ),
    Difference: lambda view: (_change(view, change) for change in view.changes),
    DispatchView: lambda view: (
        {"operation": each.operation, **structs.asdict(refusal)}
        for each in view.operations
        for refusal in each.refusals
    ),
    Timeline: _timeline,
    Findings: lambda view: map(structs.asdict, view.found),
    Repro: lambda view: map(structs.asdict, view.calls),
    Roofline: lambda view: map(structs.asdict, view.points),
}

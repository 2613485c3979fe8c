"""The views of a trace as rows of numbers, for programs: CSV and JSON Lines."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
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


def rows(view: AnyView) -> list[Row]:
    """Return one row for each thing that a view lists; all rows have the same columns."""
    return list(_OF[type(view)](view))


def as_csv(view: AnyView) -> str:
    """Return the rows with the columns' names in the first; lists are joined by blanks."""
    made = rows(view)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(made[0] if made else columns(view))
    writer.writerows([_cell(value) for value in row.values()] for row in made)
    return whole(text.getvalue())


def as_json_lines(view: AnyView) -> str:
    """Return one object a row, each with the name of its view."""
    name = {"view": view.__struct_config__.tag}
    return "".join(as_json(name | row) + "\n" for row in rows(view))


def columns(view: AnyView) -> tuple[str, ...]:
    """Return the names of the columns of a view that has no rows."""
    if isinstance(view, Summary):
        row = SummaryRow(values=("",) * len(view.by), count=0)
        return tuple(_named(view.by, row.values) | _numbers(row))
    if isinstance(view, Difference):
        return tuple(_change(view, Change(values=("",) * len(view.by), verdict="")))
    if isinstance(view, Timeline):
        return _SPAN
    if isinstance(view, DispatchView):
        return ("operation", *Refusal.__struct_fields__)
    return _ROWS[type(view)].__struct_fields__


def as_json(value: object) -> str:
    """Return a value as JSON on one line; bytes that are no UTF-8 become U+FFFD."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_whole_in(msgspec.to_builtins(value))).decode()


def _whole_in(value: Any) -> Any:
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, dict):
        return {_whole_in(key): _whole_in(each) for key, each in value.items()}
    return [_whole_in(each) for each in value] if isinstance(value, list) else value


def whole(text: str) -> str:
    """Return a text with U+FFFD for what is no character."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(str(each) for each in value)
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _summary(view: Summary) -> Iterator[Row]:
    for row in view.rows:
        yield _named(view.by, row.values) | _numbers(row)


def _named(by: tuple[str, ...], values: tuple[str, ...]) -> Row:
    return dict(zip(by, values, strict=True))


def _numbers(row: SummaryRow | None) -> Row:
    found = structs.asdict(row or SummaryRow(values=(), count=0))
    del found["values"]
    return found if row else dict.fromkeys(found) | {"count": 0}


def _diff(view: Difference) -> Iterator[Row]:
    for change in view.changes:
        yield _change(view, change)


def _change(view: Difference, change: Change) -> Row:
    numbers = {
        f"{when}_{name}": value
        for when, row in (("before", change.before), ("after", change.after))
        for name, value in _numbers(row).items()
        if name != "cumulative_share"
    }
    return {
        "verdict": change.verdict,
        **_named(view.by, change.values),
        "ratio": change.ratio,
        "implementation_before": change.implementation_before,
        "implementation_after": change.implementation_after,
        **numbers,
    }


def _dispatch(view: DispatchView) -> Iterator[Row]:
    for each in view.operations:
        for refusal in each.refusals:
            yield {"operation": each.operation, **structs.asdict(refusal)}


def _timeline(view: Timeline) -> Iterator[Row]:
    for lane in view.lanes:
        for span in lane.spans:
            for operation, busy_ns in span.by_operation:
                values = (lane.name, span.start_ns, view.width_ns, operation, busy_ns)
                yield dict(zip(_SPAN, values, strict=True))


_SPAN = ("lane", "start_ns", "width_ns", "operation", "busy_ns")
_ROWS: dict[type, type[msgspec.Struct]] = {
    Findings: Finding,
    Repro: Reproduction,
    Roofline: RooflinePoint,
}
_OF: dict[type, Callable[[Any], Iterator[Row]]] = {
    Summary: _summary,
    Difference: _diff,
    DispatchView: _dispatch,
    Timeline: _timeline,
    Findings: lambda view: (structs.asdict(one) for one in view.found),
    Repro: lambda view: (structs.asdict(one) for one in view.calls),
    Roofline: lambda view: (structs.asdict(one) for one in view.points),
}

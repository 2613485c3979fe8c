"""The summary: groups, shares, rates, and what is in no total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import structs

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.registry import load
from mlbackends.model.trace_views import Summary
from mlbackends.tracing.viewing import view

if TYPE_CHECKING:
    from mlbackends.model.trace import AnyRecord


def onednn(event: str, primitive: str, milliseconds: float, **more: Any) -> AnyRecord:
    line = (
        f"onednn_verbose,v1,primitive,{event},cpu,{primitive},jit:avx2,undef,"
        f"src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,"
        f"100x200:200x50,{milliseconds}"
    )
    record = load("mlbackends.tracing.formats", "onednn").parse(line)
    return cast("AnyRecord", structs.replace(record, **more))


def summary(records: list[AnyRecord], **options: Any) -> Summary:
    return cast("Summary", view("summary", records, **options))


def test_groups_come_with_their_times_the_longest_first() -> None:
    records = [onednn("exec", "matmul", number) for number in (1, 2, 6)] + [onednn("exec", "softmax", 27)]
    found = summary(records, by=("operation",))
    assert [row.values for row in found.rows] == [("softmax",), ("matmul",)]
    row = found.rows[1]
    assert (row.count, row.total_ns, row.min_ns, row.max_ns) == (3, 9e6, 1e6, 6e6)
    assert (row.mean_ns, row.median_ns) == (3e6, 2e6)
    assert row.share == pytest.approx(0.25)
    assert [row.cumulative_share for row in found.rows] == pytest.approx([0.75, 1.0])
    # The standard deviation of 1, 2, 6 over their mean.
    assert row.deviation == pytest.approx(7**0.5 / 3)


def test_rates_are_over_the_time_of_the_calls_with_known_work() -> None:
    records = [onednn("exec", "matmul", 1), onednn("exec", "matmul", 3)]
    row = summary(records).rows[0]
    assert row.gflops == pytest.approx(2 * 2 * 100 * 200 * 50 / 4e6)
    assert row.gigabytes_per_second == pytest.approx(2 * 4 * (20_000 + 10_000 + 5_000) / 4e6)


def test_a_call_without_a_time_is_counted_and_has_no_rate() -> None:
    row = summary([onednn("exec", "matmul", 1, duration_ns=None)]).rows[0]
    assert (row.count, row.total_ns, row.gflops, row.min_ns) == (1, 0, None, None)


def test_what_is_nested_or_made_is_in_no_total_and_told() -> None:
    records = [
        onednn("exec", "matmul", 1),
        onednn("exec:external", "matmul", 1),
        onednn("create:cache_miss", "matmul", 2),
        onednn("create_nested:cache_miss", "matmul", 1),
    ]
    found = summary(records)
    assert (found.count, found.total_ns) == (1, 1e6)
    assert {row.reason: row.total_ns for row in found.uncounted} == {
        "parts of primitives that are counted as a whole": 1e6,
        "nested primitive creations": 1e6,
        "primitive creations": 2e6,
    }


@pytest.mark.parametrize(("of", "count"), [("work", 1), ("creations", 1), ("partitions", 0), ("all", 3)])
def test_other_calls_can_be_asked_for(of: str, count: int) -> None:
    records = [
        onednn("exec", "matmul", 1),
        onednn("create:cache_miss", "matmul", 2),
        onednn("create_nested:cache_miss", "matmul", 1),
    ]
    assert summary(records, of=of).count == count


def test_what_has_no_row_is_told_together() -> None:
    records = [onednn("exec", name, time) for name, time in (("a", 5), ("b", 3), ("c", 1), ("c", 1))]
    found = summary(records, by=("operation",), top=1)
    assert (found.groups, len(found.rows)) == (3, 1)
    assert found.others is not None
    assert (found.others.count, found.others.total_ns) == (3, 5e6)
    assert (found.others.min_ns, found.others.max_ns) == (1e6, 3e6)
    assert found.others.share == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("by", "values"),
    [
        (("thread",), {("1",), ("2",)}),
        (("process", "thread"), {("7", "1"), ("7", "2")}),
        (("isa",), {("avx2",)}),
        (("operation", "source"), {("matmul", "")}),
        (("tracer", "shape", "dtype"), {("onednn", "100x200:200x50", "f32")}),
        ((), {()}),
    ],
)
def test_any_field_can_be_grouped_by(by: tuple[str, ...], values: set[tuple[str, ...]]) -> None:
    records = [onednn("exec", "matmul", 1, process=7, thread=thread) for thread in (1, 2, 2)]
    assert {row.values for row in summary(records, by=by).rows} == values


def test_nothing_gives_an_empty_summary() -> None:
    assert summary([]) == Summary(by=("tracer", "operation", "implementation", "dtype"))


def test_an_unknown_field_or_kind_is_refused() -> None:
    with pytest.raises(BadInput, match="no field 'implementaton'"):
        summary([], by=("implementaton",))
    with pytest.raises(UnknownName, match="works"):
        summary([], of="works")
    with pytest.raises(BadInput, match="cannot be -1"):
        summary([], top=-1)
    with pytest.raises(UnknownName, match="no view named"):
        view("sumary", [])

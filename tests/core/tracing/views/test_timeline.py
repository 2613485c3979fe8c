"""The timeline: stretches that grow with the trace, lanes, stamps that are real or made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from mlbackends.base.errors import BadInput
from mlbackends.base.registry import load
from mlbackends.model.trace_views import Timeline
from mlbackends.tracing.viewing import view

if TYPE_CHECKING:
    from mlbackends.model.trace import AnyRecord

LINE = (
    "onednn_verbose,v1,primitive,exec,cpu,{},jit:avx2,undef,"
    "src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,8x8,1"
)
GRAPH = (
    "onednn_verbose,v1,graph,exec,cpu,1,sdp,mm;sm,,in0_f32:1:strided:variable:8x8:8s1"
    " out0_f32:2:strided:variable:8x8:8s1,fpm:strict,larger_partition_kernel_t,dnnl_backend,3"
)


def call(start: int | None, duration: float, operation: str = "matmul", **more: Any) -> AnyRecord:
    record = load("mlbackends.tracing.formats", "onednn").parse(LINE.format(operation))
    clock = "" if start is None else "epoch"
    return cast(
        "AnyRecord",
        structs.replace(record, **({"start_ns": start, "clock": clock, "duration_ns": duration} | more)),
    )


def timeline(records: list[AnyRecord], **options: Any) -> Timeline:
    return cast("Timeline", view("timeline", records, **options))


def test_each_stretch_holds_what_ran_in_it() -> None:
    found = timeline([call(5000, 1024), call(5000 + 1024, 512, "softmax"), call(5000 + 4096, 1024)])
    assert found.width_ns == 1024
    assert [(span.start_ns, span.by_operation) for span in found.lanes[0].spans] == [
        (0, (("matmul", 1024.0),)),
        (1024, (("softmax", 512.0),)),
        (4096, (("matmul", 1024.0),)),
    ]
    assert found.end_ns == 5120
    assert not found.synthetic
    assert not found.partly


def test_busy_times_are_fractions_where_a_call_fills_a_stretch() -> None:
    spans = timeline([call(5000, 4096)]).lanes[0].spans
    assert {type(span.busy_ns) for span in spans} == {float}


def test_stretches_grow_so_that_there_are_never_too_many() -> None:
    records = [call(number * 1_000_000, 500_000) for number in range(1000)]
    found = timeline(records, spans=50)
    assert len(found.lanes[0].spans) <= 50
    assert found.lanes[0].busy_ns == pytest.approx(1000 * 500_000)
    assert found.width_ns >= 1000 * 1_000_000 / 50


def test_without_stamps_calls_stand_one_behind_the_other() -> None:
    found = timeline([call(None, 3000), call(None, 1000)])
    assert found.synthetic
    assert found.end_ns == 4000
    assert found.lanes[0].busy_ns == 4000


def test_a_trace_that_has_only_some_stamps_says_so() -> None:
    found = timeline([call(0, 3000), call(None, 1000)])
    assert (found.synthetic, found.partly, found.end_ns) == (False, True, 4000)


def test_threads_have_lanes_and_ranks_their_names() -> None:
    records = [
        call(0, 10, process=4, thread=1),
        call(0, 10, process=4, thread=2),
        call(0, 10, source="rank1"),
    ]
    assert [lane.name for lane in timeline(records).lanes] == [
        "process 4 thread 1",
        "process 4 thread 2",
        "rank1",
    ]


def test_threads_beyond_the_most_are_counted() -> None:
    found = timeline([call(0, 10, thread=number) for number in range(5)], lanes=2)
    assert (len(found.lanes), found.skipped_lanes) == (2, 3)


def test_two_clocks_begin_together() -> None:
    records = [call(10**18, 100), call(5_000, 100, clock="monotonic")]
    assert timeline(records).end_ns < 10_000


def test_what_encloses_others_is_not_drawn_beside_them() -> None:
    graph = cast("AnyRecord", load("mlbackends.tracing.formats", "onednn").parse(GRAPH))
    assert timeline([call(None, 1e6), graph]).lanes[0].count == 1


def test_an_earlier_call_that_is_told_later_has_its_place() -> None:
    found = timeline([call(10_000, 1024), call(2_000, 1024, "softmax")])
    spans = found.lanes[0].spans
    assert spans[0].by_operation[0][0] == "softmax"
    assert found.lanes[0].busy_ns == pytest.approx(2048)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(2**62), 2**62)),
            st.one_of(st.floats(0, 1e20), st.just(float("inf")), st.just(float("nan"))),
        ),
        max_size=20,
    ),
    st.integers(2, 30),
)
def test_any_stamps_and_times_make_a_timeline(calls: list[tuple[int | None, float]], spans: int) -> None:
    found = timeline([call(start, duration) for start, duration in calls], spans=spans)
    believed = [duration for _, duration in calls if 0 <= duration <= 1e18]
    assert sum(lane.count for lane in found.lanes) == len(believed)
    for lane in found.lanes:
        assert len(lane.spans) <= spans
        assert lane.busy_ns == pytest.approx(sum(believed), rel=1e-6, abs=1e3)


def test_a_timeline_of_nothing_is_empty() -> None:
    assert timeline([]) == Timeline(width_ns=1024)


def test_a_timeline_needs_a_stretch() -> None:
    with pytest.raises(BadInput, match="at least two"):
        timeline([], spans=1)

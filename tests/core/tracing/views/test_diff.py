"""Two traces side by side: verdicts, thresholds, and when a comparison fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.registry import load
from mlbackends.tracing import viewing

if TYPE_CHECKING:
    from mlbackends.model.trace import AnyRecord
    from mlbackends.model.trace_views import Difference


def call(primitive: str, milliseconds: float, implementation: str = "jit:avx2") -> AnyRecord:
    line = (
        f"onednn_verbose,v1,primitive,exec,cpu,{primitive},{implementation},undef,"
        f"src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,8x8,{milliseconds}"
    )
    return cast("AnyRecord", load("mlbackends.tracing.formats", "onednn").parse(line))


def difference(before: list[AnyRecord], after: list[AnyRecord], **options: Any) -> Difference:
    collector: Any = viewing.begin("diff", **options)
    for records, trace in ((before, collector.before), (after, collector)):
        for record in records:
            trace.add(record)
    found: Difference = collector.result()
    return found


def verdicts(before: list[AnyRecord], after: list[AnyRecord], **options: Any) -> dict[str, str]:
    found = difference(before, after, **options)
    return {change.values[1]: change.verdict for change in found.changes}


def test_each_call_has_a_verdict() -> None:
    before = [call("a", 10), call("b", 10), call("c", 10), call("d", 10), call("tiny", 0.01)]
    after = [call("a", 12), call("b", 8), call("c", 10.5), call("e", 10), call("tiny", 0.05)]
    assert verdicts(before, after) == {
        "a": "slower",
        "b": "faster",
        "c": "same",
        "d": "gone",
        "e": "new",
        "tiny": "noise",
    }


def test_what_is_slower_comes_first_by_how_much_time_it_costs() -> None:
    before = [call("a", 10), call("b", 100), call("c", 10)]
    after = [call("a", 30), call("b", 150), call("c", 5)]
    found = difference(before, after)
    assert [change.values[1] for change in found.changes] == ["b", "a", "c"]
    assert found.ratio == pytest.approx(185 / 120)


def test_a_comparison_fails_where_something_is_slower() -> None:
    assert difference([call("a", 10)], [call("a", 12)]).failed
    assert not difference([call("a", 10)], [call("a", 12)], threshold=1.3).failed
    assert not difference([call("a", 12)], [call("a", 10)]).failed
    assert not difference([call("a", 10)], [call("b", 90)]).failed


def test_a_comparison_fails_by_the_whole_time_where_that_is_asked_for() -> None:
    before, after = [call("a", 10)], [call("a", 10), call("b", 10)]
    assert not difference(before, after).failed
    assert difference(before, after, whole_threshold=1.5).failed
    assert not difference(before, after, whole_threshold=2.5).failed


@pytest.mark.parametrize(
    ("measure", "verdict"),
    [("median", "same"), ("total", "slower"), ("mean", "slower"), ("min", "faster")],
)
def test_the_measure_decides(measure: str, verdict: str) -> None:
    before = [call("a", number) for number in (10, 10, 10)]
    after = [call("a", number) for number in (5, 10, 90)]
    assert verdicts(before, after, measure=measure) == {"a": verdict}


def test_another_implementation_is_told_beside_the_verdict() -> None:
    change = difference([call("a", 10)], [call("a", 90, "ref:any")]).changes[0]
    assert (change.implementation_before, change.implementation_after) == ("jit:avx2", "ref:any")
    assert change.ratio == pytest.approx(9)


def test_an_implementation_can_be_a_part_of_what_is_compared() -> None:
    found = difference([call("a", 10)], [call("a", 90, "ref:any")], by=("operation", "implementation"))
    assert {change.verdict for change in found.changes} == {"new", "gone"}


def convolution(direction: str, milliseconds: float) -> AnyRecord:
    line = (
        f"onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx2,{direction},src:f32:a:blocked:aBcd8b::f0"
        f" wei:f32:a:blocked:ABcd8b8a::f0 dst:f32:a:blocked:aBcd8b::f0,,,mb4_ic8oc8,{milliseconds}"
    )
    return cast("AnyRecord", load("mlbackends.tracing.formats", "onednn").parse(line))


def reorder(before: str, after: str, milliseconds: float) -> AnyRecord:
    line = (
        f"onednn_verbose,v1,primitive,exec,cpu,reorder,jit:blk,undef,src:f32::blocked:{before}::f0"
        f" dst:f32::blocked:{after}::f0,,,8x8,{milliseconds}"
    )
    return cast("AnyRecord", load("mlbackends.tracing.formats", "onednn").parse(line))


def test_one_slow_direction_of_a_convolution_is_not_hidden_by_the_others() -> None:
    ways = ("forward_training", "backward_data", "backward_weights")
    before = [convolution(way, 1) for way in ways for _ in range(20)]
    after = [convolution(way, 3 if way == ways[2] else 1) for way in ways for _ in range(20)]
    found = difference(before, after, threshold=1.2)
    assert found.failed
    assert {change.values[-1]: change.verdict for change in found.changes} == {
        "bwd_w": "slower",
        "bwd_d": "same",
        "fwd_t": "same",
    }


def test_reorders_there_and_back_are_two_calls() -> None:
    before = [reorder("ab", "aB8b", 1), reorder("ab", "aB8b", 1), reorder("aB8b", "ab", 1)]
    after = [reorder("ab", "aB8b", 1), reorder("ab", "aB8b", 1), reorder("aB8b", "ab", 3)]
    found = difference(before, after)
    assert [(change.values[-1], change.verdict) for change in found.changes] == [
        ("aB8b->ab", "slower"),
        ("ab->aB8b", "same"),
    ]


def test_another_layout_that_the_library_chose_is_the_same_call() -> None:
    before = convolution("forward_inference", 1)
    after = load("mlbackends.tracing.formats", "onednn").parse(
        str(before).replace("8b", "16b").replace("avx2", "avx")
    )
    assert [change.verdict for change in difference([before], [after]).changes] == ["same"]


def test_two_empty_traces_do_not_differ() -> None:
    found = difference([], [])
    assert (found.changes, found.ratio, found.failed) == ((), None, False)


def test_a_senseless_comparison_is_refused() -> None:
    with pytest.raises(UnknownName, match="'medain'") as caught:
        difference([], [], measure="medain")
    assert "median" in caught.value.hint
    senseless: tuple[dict[str, Any], ...] = (
        {"threshold": 0.5},
        {"smallest_share": 2.0},
        {"whole_threshold": 0.1},
    )
    for wrong in senseless:
        with pytest.raises(BadInput, match="is not valid"):
            difference([], [], **wrong)
    with pytest.raises(BadInput):
        difference([], [], threshold=float("nan"))


# ---- what else changed -----------------------------------------------------------------------


def line(text: str) -> AnyRecord:
    tracer = "mkl" if text.startswith("MKL") else "onednn"
    return cast("AnyRecord", load("mlbackends.tracing.formats", tracer).parse(text))


def onednn(version: str, threads: int, isa: str) -> list[AnyRecord]:
    return [
        line(f"onednn_verbose,v1,info,oneDNN v{version} (commit abc)"),
        line(f"onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:{threads}"),
        line(f"onednn_verbose,v1,info,cpu,isa:{isa}"),
        call("a", 10),
    ]


def mkl(threads: int, branch: str = "OFF") -> AnyRecord:
    return line(f"MKL_VERBOSE SDOT(8,0x1,1,0x2,1) 1us CNR:{branch} Dyn:1 TID:0  NThr:{threads}")


def settings(before: list[AnyRecord], after: list[AnyRecord], **options: Any) -> dict[str, str]:
    found = difference(before, after, **options).settings
    return {change.name: f"{','.join(change.before)} -> {','.join(change.after)}" for change in found}


def test_versions_threads_and_instruction_sets_are_named_beside_the_numbers() -> None:
    before = [*onednn("3.6.2", 16, "Intel AVX-512"), mkl(16)]
    after = [*onednn("3.7.0", 8, "Intel AVX2"), mkl(8), mkl(1, "AVX2")]
    expected = {
        "oneDNN version": "3.6.2 -> 3.7.0",
        "oneDNN threads": "16 -> 8",
        "oneDNN instruction set": "Intel AVX-512 -> Intel AVX2",
        "MKL threads": "16 -> 1,8",
        "MKL branch (CNR)": "OFF -> AVX2,OFF",
    }
    assert settings(before, after) == expected


def test_settings_that_are_the_same_or_not_told_are_no_change() -> None:
    before = onednn("3.6.2", 16, "Intel AVX-512")
    assert settings(before, before) == {}
    assert settings(before, [call("a", 10)]) == {}


def test_a_trace_whose_times_are_unsteady_is_named() -> None:
    steady, starved = [[call("a", number) for number in (9, *[1] * 8, last)] for last in (1, 50)]
    found = difference(steady, starved)
    assert found.unsteady_before == ""
    assert found.unsteady_after.startswith("1 call took over 3 times the median")


def test_of_a_log_without_a_header_the_kernels_tell_the_instruction_set() -> None:
    before, after = call("a", 10, "jit:avx512_core"), call("a", 10, "jit:avx2")
    assert settings([before], [after]) == {"oneDNN kernels": "avx512_core -> avx2"}
    told = onednn("3.6.2", 16, "Intel AVX2")
    assert settings([*told, before], [*told, after]) == {}

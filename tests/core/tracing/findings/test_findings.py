"""What a trace gives away: each finding on lines that show it, and on lines that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import structs

from mlbackends.model import registry
from mlbackends.model.errors import UnknownName
from mlbackends.model.trace import Malformed
from mlbackends.tracing.finder import SEVERITIES, percent, took
from mlbackends.tracing.viewing import view

if TYPE_CHECKING:
    from mlbackends.model.trace import AnyRecord
    from mlbackends.model.trace_views import Finding, Findings

HEADER = "onednn_verbose,v1,info,oneDNN v3.6.2 (commit 28d696724426b943e2f4a0e607f90cdc19aedaf6)"
ISA = "onednn_verbose,v1,info,cpu,isa:Intel AVX-512 with Intel DL Boost and bfloat16 support"
MKL = (
    "MKL_VERBOSE oneMKL 2026 Update 2 Product build 20260915 for Intel(R) 64 architecture {},"
    " Lnx 2.60GHz lp64 intel_thread"
)


def line(text: str, **more: Any) -> AnyRecord:
    record = registry.load(
        "mlbackends.tracing.formats", "mkl" if "MKL" in text[:12] else "onednn"
    ).parse(text)
    assert record is not None, text
    return cast("AnyRecord", structs.replace(record, **more))


def run(
    primitive: str = "matmul",
    milliseconds: float = 1,
    *,
    event: str = "exec",
    kernel: str = "jit:avx512_core",
    tensors: str = "src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0",
    attributes: str = "",
    problem: str = "64x64:64x64",
    **more: Any,
) -> AnyRecord:
    return line(
        f"onednn_verbose,v1,primitive,{event},cpu,{primitive},{kernel},undef,{tensors},"
        f"{attributes},,{problem},{milliseconds}",
        **more,
    )


def reorder(source: str, target: str, milliseconds: float = 1, **more: Any) -> AnyRecord:
    return run(
        "reorder",
        milliseconds,
        tensors=f"src:{source}::f0 dst:{target}::f0",
        problem="64x64",
        **more,
    )


def sgemm(milliseconds: float, size: int = 64) -> AnyRecord:
    return line(
        f"MKL_VERBOSE SGEMM(N,N,{size},{size},{size},0x1,0x2,{size},0x3,{size},0x4,0x5,{size})"
        f" {milliseconds}ms CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2"
    )


def found(code: str, *records: AnyRecord, **machine: str) -> list[Finding]:
    seen = view("findings", records, codes=(code,), **machine)
    return list(cast("Findings", seen).found)


def one(code: str, *records: AnyRecord, **machine: str) -> Finding:
    [finding] = found(code, *records, **machine)
    assert finding.code == code
    assert finding.severity in SEVERITIES
    return finding


# ---- reference implementations ---------------------------------------------------------------


def test_a_reference_implementation_is_told_with_its_share() -> None:
    finding = one(
        "reference-implementation", run(milliseconds=3), run("softmax", 1, kernel="ref:any")
    )
    assert finding.severity == "high"
    assert finding.share == 0.25
    assert "1 call of softmax ran ref:any: 1 ms, 25% of the time" in finding.seen
    assert "ref:any" in finding.evidence[0]


@pytest.mark.parametrize(("rest", "severity"), [(1, "high"), (50, "medium"), (5000, "low")])
def test_a_reference_implementation_is_as_bad_as_its_share(rest: float, severity: str) -> None:
    finding = one(
        "reference-implementation", run(milliseconds=rest), run("softmax", kernel="ref:any")
    )
    assert finding.severity == severity


def test_a_reference_part_inside_another_implementation_is_a_weak_sign() -> None:
    finding = one("reference-implementation", run(kernel="jit_uni_ncsp:conv+ref:any"))
    assert finding.severity == "low"


def test_fast_implementations_are_no_finding() -> None:
    assert not found("reference-implementation", run(), sgemm(1))


# ---- reorders --------------------------------------------------------------------------------


def test_reorders_are_told_by_who_needs_them() -> None:
    blocked = "src:f32::blocked:aB16b::f0 wei:f32::blocked:AB::f0 dst:f32::blocked:aB16b::f0"
    finding = one(
        "reorder-share",
        reorder("f32::blocked:ab", "f32::blocked:aB16b"),
        reorder("f32::blocked:ab", "f32::blocked:AB"),
        run("convolution", 2, tensors=blocked, kernel="jit:avx2"),
        reorder("f32::blocked:aB16b", "f32::blocked:ab"),
        run(milliseconds=5),
    )
    assert finding.severity == "high"
    assert finding.count == 3
    assert finding.share == pytest.approx(0.3)
    assert set(finding.evidence[:3]) == {
        "1 reorder, 1 ms: input of convolution (jit:avx2)",
        "1 reorder, 1 ms: weights of convolution (jit:avx2)",
        "1 reorder, 1 ms: input of matmul (jit:avx512_core)",
    }


def test_a_reorder_at_the_end_belongs_to_what_came_before() -> None:
    finding = one(
        "reorder-share",
        run(tensors="src:f32::blocked:ab::f0 dst:f32::blocked:aB8b::f0"),
        reorder("f32::blocked:aB8b", "f32::blocked:ba"),
    )
    assert finding.evidence[0] == "1 reorder, 1 ms: result of matmul (jit:avx512_core)"


def test_threads_do_not_claim_each_others_reorders() -> None:
    finding = one(
        "reorder-share",
        reorder("f32::blocked:ab", "f32::blocked:ba", thread=1),
        run(tensors="src:f32::blocked:ba::f0 dst:f32::blocked:ab::f0", thread=2),
    )
    assert "no primitive beside it" in finding.evidence[0]


def test_few_reorders_are_no_finding() -> None:
    assert not found(
        "reorder-share", run(milliseconds=99), reorder("f32::blocked:ab", "f32::blocked:ba")
    )


# ---- what is made ----------------------------------------------------------------------------


def test_what_is_made_again_was_thrown_out_of_the_cache() -> None:
    made = run(event="create:cache_miss", milliseconds=2)
    finding = one("cache-misses", made, run(), made, run(event="create:cache_hit"))
    assert finding.count == 1
    assert finding.total_ns == 2e6
    assert finding.severity == "high"


def test_another_process_has_a_cache_of_its_own() -> None:
    made = [run(event="create:cache_miss", process=process) for process in (1, 2)]
    assert not found("cache-misses", *made)


def test_a_header_begins_a_new_process() -> None:
    made = run(event="create:cache_miss")
    assert not found("cache-misses", made, line(HEADER), made)


def test_shapes_that_keep_coming_are_told() -> None:
    records = []
    for size in range(60):
        records += [run(event="create:cache_miss", problem=f"{size}x8:8x8"), run()]
    finding = one("new-shapes", *records)
    assert finding.count == 29
    assert "29 of matmul" in finding.seen


def test_a_warm_up_is_no_finding() -> None:
    made = [run(event="create:cache_miss", problem=f"{size}x8:8x8") for size in range(60)]
    assert not found("new-shapes", *made, *[run()] * 60)


# ---- the instruction set ---------------------------------------------------------------------


def test_kernels_below_the_headers_instruction_set_are_told() -> None:
    finding = one("isa-below-cpu", line(ISA), run(milliseconds=3), run(kernel="jit:avx2"))
    assert finding.share == 0.25
    assert "below AVX-512" in finding.seen
    assert "AVX2 1 call 1 ms" in finding.seen


def test_a_capped_header_is_told_where_the_processor_is_known() -> None:
    capped = line(ISA.replace("Intel AVX-512 with Intel DL Boost and bfloat16", "Intel AVX2"))
    finding = one("isa-below-cpu", capped, run(kernel="jit:avx2"), capability="AVX512")
    assert finding.severity == "high"
    assert "uses AVX2; this processor has AVX-512" in finding.seen
    assert not found("isa-below-cpu", capped, run(kernel="jit:avx2"), capability="AVX2")


def test_kernels_without_an_instruction_set_in_their_name_are_no_finding() -> None:
    assert not found("isa-below-cpu", line(ISA), run(kernel="jit:uni"), run())


# ---- short calls -----------------------------------------------------------------------------


def test_many_tiny_calls_are_told() -> None:
    finding = one(
        "tiny-calls",
        *[run(milliseconds=0.005)] * 1200,
        run(milliseconds=1, problem="512x512:512x512"),
    )
    assert finding.severity == "medium"
    assert finding.count == 1200
    assert "the best here 268" in finding.seen
    assert finding.evidence[0].startswith("1,200 calls of matmul 64x64:64x64 f32")


def test_few_or_long_calls_are_not_tiny() -> None:
    assert not found("tiny-calls", *[run(milliseconds=0.005)] * 99)
    assert not found("tiny-calls", *[run(milliseconds=0.5)] * 200)


def test_tracing_that_takes_longer_than_the_calls_is_told() -> None:
    finding = one("tracing-overhead", *[sgemm(0.01)] * 100)
    assert finding.severity == "medium"
    assert finding.total_ns == 1_200_000
    assert not found("tracing-overhead", *[sgemm(0.1)] * 100)


def test_first_calls_that_set_up_are_told() -> None:
    finding = one("first-calls", sgemm(12), *[sgemm(1)] * 4)
    assert finding.total_ns == pytest.approx(11e6)
    assert not found("first-calls", sgemm(2), *[sgemm(1)] * 4)
    assert not found("first-calls", sgemm(12), sgemm(1))


def test_the_first_calls_of_all_threads_are_told_together() -> None:
    first = [run(milliseconds=12, thread=thread) for thread in (1, 2, 3)]
    later = [run(milliseconds=1, thread=thread) for thread in (1, 2, 3) * 3]
    finding = one("first-calls", *first, *later)
    assert finding.count == 3
    assert finding.total_ns == pytest.approx(33e6)
    assert "3 first calls took" in finding.seen


def test_what_began_while_the_first_call_ran_is_a_first_call() -> None:
    starts = (0, 1, 20, 21, 22)
    calls = [
        run(milliseconds=12 if start < 12 else 1, start_ns=start * 1_000_000) for start in starts
    ]
    assert one("first-calls", *calls).count == 2


def test_a_thread_for_each_call_leaves_nothing_to_compare_with() -> None:
    assert not found(
        "first-calls",
        run(milliseconds=12, thread=0),
        *(run(milliseconds=1, thread=thread) for thread in range(1, 9)),
    )


# ---- precision -------------------------------------------------------------------------------

BF16 = "src:bf16::blocked:ab::f0 wei:bf16::blocked:ab::f0 dst:bf16::blocked:ab::f0"


def test_f32_that_is_computed_with_in_bf16_is_told() -> None:
    records = [reorder("f32::blocked:ab", "bf16::blocked:ab"), run(tensors=BF16)]
    finding = one("f32-as-bf16", *records)
    assert "1 reorder turned f32 into bf16, and 1 call" in finding.seen.replace("product", "call")
    assert len(finding.evidence) == 2


def test_an_attribute_that_allows_less_precision_is_told() -> None:
    finding = one("f32-as-bf16", run(attributes="attr-fpmath:bf16"))
    assert "may compute in bf16" in finding.seen


def test_bf16_from_the_start_is_no_finding() -> None:
    assert not found(
        "f32-as-bf16", run(tensors=BF16), reorder("bf16::blocked:ab", "f32::blocked:ab")
    )


# ---- the libraries ---------------------------------------------------------------------------


def test_mkls_generic_kernel_file_is_told() -> None:
    generic = line(MKL.format("Intel(R) Architecture processors"))
    assert one("generic-mkl-kernel", generic).severity == "note"
    known = "Intel(R) Advanced Vector Extensions 512 (Intel(R) AVX-512) enabled processors"
    assert not found("generic-mkl-kernel", line(MKL.format(known)))


def test_several_versions_are_told() -> None:
    finding = one("several-versions", line(HEADER), line(HEADER.replace("3.6.2", "3.7.0")))
    assert "3.6.2, 3.7.0" in finding.seen
    assert not found("several-versions", line(HEADER), line(HEADER))


def test_complaints_are_counted_by_kind() -> None:
    error = "onednn_verbose,v1,primitive,error,cpu,memory could not be had"
    check = "onednn_verbose,v1,primitive,create:check,matmul,bad dimension src:1,src/common/matmul.cpp:204"
    findings = found("library-errors", line(error), line(check), line(check))
    assert [(each.severity, each.count) for each in findings] == [("medium", 1), ("low", 2)]
    assert "matmul: bad dimension src:1" in findings[1].seen


def test_lines_that_could_not_be_read_are_told() -> None:
    torn = Malformed(tracer="onednn", raw="onednn_verbose,v1,prim", reason="the line is cut off")
    finding = one("unreadable-lines", run(), torn)
    assert (finding.count, finding.evidence) == (1, ("onednn_verbose,v1,prim",))


def test_nested_time_is_told_as_left_out() -> None:
    nested = run(event="create_nested:cache_miss", milliseconds=2)
    finding = one("double-counting", run(), nested)
    assert (finding.count, finding.total_ns) == (1, 2e6)
    assert not found("double-counting", run(), run(event="create:cache_miss"))


# ---- all of them -----------------------------------------------------------------------------


def test_the_worst_come_first() -> None:
    records = [
        run("softmax", 9, kernel="ref:any"),
        line(HEADER),
        line(HEADER.replace("3.6", "3.7")),
    ]
    seen = cast("Findings", view("findings", records))
    assert [each.severity for each in seen.found] == ["high", "low"]
    assert len(seen.asked) == len(registry.names("mlbackends.tracing.findings"))


def test_an_empty_trace_gives_nothing_away() -> None:
    assert cast("Findings", view("findings", [])).found == ()


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(UnknownName, match="reorder_shares") as caught:
        view("findings", [], codes=("reorder-shares",))
    assert "reorder_share" in caught.value.hint


@pytest.mark.parametrize("name", registry.names("mlbackends.tracing.findings"))
def test_every_finding_says_in_one_sentence_what_it_is(name: str) -> None:
    doc = registry.load("mlbackends.tracing.findings", name).__doc__
    assert doc
    assert doc.strip().endswith(".")


@pytest.mark.parametrize(
    ("share", "said"),
    [(0, "0%"), (0.00001, "<0.1%"), (0.0042, "0.4%"), (0.099, "9.9%"), (0.32, "32%"), (1, "100%")],
)
def test_shares_read_as_people_write_them(share: float, said: str) -> None:
    assert percent(share) == said


@pytest.mark.parametrize(
    ("duration", "said"), [(12, "12 ns"), (1500, "1.5 us"), (2.5e6, "2.5 ms"), (61e9, "61 s")]
)
def test_times_have_three_digits(duration: float, said: str) -> None:
    assert took(duration) == said

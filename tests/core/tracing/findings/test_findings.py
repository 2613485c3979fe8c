"""What a trace gives away: each finding on lines that show it, and on lines that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import structs

from mlbackends.base import registry
from mlbackends.model.trace import Malformed
from mlbackends.model.trace_views import Roof
from mlbackends.tracing.finder import SEVERITIES, finders, percent, took
from mlbackends.tracing.machine import UNKNOWN, Machine, machine_of
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
    record = registry.load("mlbackends.tracing.formats", "mkl" if "MKL" in text[:12] else "onednn").parse(
        text
    )
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


def found(code: str, *records: AnyRecord, machine: Machine = UNKNOWN) -> list[Finding]:
    seen = view("findings", records, codes=(code,), machine=machine)
    return list(cast("Findings", seen).findings)


def one(code: str, *records: AnyRecord, machine: Machine = UNKNOWN) -> Finding:
    [finding] = found(code, *records, machine=machine)
    assert finding.code == code
    assert finding.severity in SEVERITIES
    return finding


# ---- reference implementations ---------------------------------------------------------------


def test_a_reference_implementation_is_told_with_its_share() -> None:
    finding = one("reference-implementation", run(milliseconds=3), run("softmax", 1, kernel="ref:any"))
    assert finding.severity == "high"
    assert finding.share == 0.25
    assert "1 call of softmax ran ref:any: 1 ms, 25% of the time" in finding.seen
    assert "ref:any" in finding.evidence[0]


@pytest.mark.parametrize(("rest", "severity"), [(1, "high"), (50, "medium"), (5000, "")])
def test_a_reference_implementation_is_as_bad_as_its_share(rest: float, severity: str) -> None:
    """Below 1% of the time it is not worth a finding."""
    records = run(milliseconds=rest), run("softmax", kernel="ref:any")
    findings = found("reference-implementation", *records)
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_a_reference_part_inside_another_implementation_is_a_weak_sign() -> None:
    finding = one("reference-implementation", run(kernel="jit_uni_ncsp:conv+ref:any"))
    assert finding.severity == "low"


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
    assert "no neighbouring primitive" in finding.evidence[0]


# ---- what is made ----------------------------------------------------------------------------


def test_what_is_made_again_was_thrown_out_of_the_cache() -> None:
    made = run(event="create:cache_miss", milliseconds=2)
    finding = one("cache-misses", made, run(), made, run(event="create:cache_hit"))
    assert finding.count == 1
    assert finding.total_ns == 2e6
    assert finding.severity == "high"


def test_shapes_that_keep_coming_are_told() -> None:
    records = []
    for size in range(60):
        records += [run(event="create:cache_miss", problem=f"{size}x8:8x8"), run()]
    finding = one("new-shapes", *records)
    assert finding.count == 29
    assert "29 of matmul" in finding.seen


# ---- the instruction set ---------------------------------------------------------------------


def test_kernels_below_the_headers_instruction_set_are_told() -> None:
    finding = one("isa-below-cpu", line(ISA), run(milliseconds=3), run(kernel="jit:avx2"))
    assert finding.share == 0.25
    assert "below AVX-512" in finding.seen
    assert "AVX2 1 call 1 ms" in finding.seen
    assert "which other calls use" in finding.seen
    alone = one("isa-below-cpu", line(ISA), run(kernel="jit:avx2"))
    assert "which the header names: AVX2" in alone.seen


def test_a_capped_header_is_told_where_the_processor_is_known() -> None:
    capped = line(ISA.replace("Intel AVX-512 with Intel DL Boost and bfloat16", "Intel AVX2"))
    finding = one("isa-below-cpu", capped, run(kernel="jit:avx2"), machine=Machine(capability="AVX512"))
    assert finding.severity == "high"
    assert "uses AVX2; this processor has AVX-512" in finding.seen
    assert not found("isa-below-cpu", capped, run(kernel="jit:avx2"), machine=Machine(capability="AVX2"))


# ---- short calls -----------------------------------------------------------------------------


def test_many_tiny_calls_are_told() -> None:
    finding = one(
        "tiny-calls",
        *[run(milliseconds=0.005)] * 1200,
        run(milliseconds=1, problem="512x512:512x512"),
    )
    assert finding.severity == "medium"
    assert finding.count == 1200
    assert "the best in this trace is 268" in finding.seen
    assert finding.evidence[0].startswith("1,200 calls of matmul 64x64:64x64 f32")


def test_calls_that_compute_next_to_nothing_are_tiny_even_if_each_takes_long() -> None:
    finding = one("tiny-calls", *[run(milliseconds=0.03, problem="8x16:16x8")] * 5000)
    assert finding.severity == "medium" and finding.count == 5000
    assert found("tiny-calls", *[run(milliseconds=0.03)] * 5000) == []


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
    assert [(finding.severity, finding.count) for finding in findings] == [
        ("medium", 1),
        ("low", 2),
    ]
    assert "matmul: bad dimension src:1" in findings[1].seen


def test_lines_that_could_not_be_read_are_told() -> None:
    torn = Malformed(tracer="onednn", raw="onednn_verbose,v1,prim", reason="the line is cut off")
    finding = one("unreadable-lines", run(), torn)
    assert (finding.count, finding.evidence) == (1, ("onednn_verbose,v1,prim",))


MADE = run(event="create:cache_miss")


@pytest.mark.parametrize(
    ("code", "records"),
    [
        ("reference-implementation", [run(), sgemm(1)]),
        ("reorder-share", [run(milliseconds=99), reorder("f32::blocked:ab", "f32::blocked:ba")]),
        ("cache-misses", [structs.replace(MADE, process=process) for process in (1, 2)]),
        ("cache-misses", [MADE, line(HEADER), MADE]),
        ("new-shapes", [run(event="create:cache_miss",
         problem=f"{size}x8:8x8") for size in range(60)] + [run()] * 60),
        ("isa-below-cpu", [line(ISA), run(kernel="jit:uni"), run()]),
        ("tiny-calls", [run(milliseconds=0.005)] * 99),
        ("tiny-calls", [run(milliseconds=0.005)] * 2000 + [run(milliseconds=2000)]),
        ("tiny-calls", [run(milliseconds=0.5)] * 200),
        ("first-calls", [run(milliseconds=1 if thread else 12, thread=thread) for thread in range(9)]),
        ("f32-as-bf16", [run(tensors=BF16), reorder("bf16::blocked:ab", "f32::blocked:ab")]),
    ],
    ids=[
        "fast implementations",
        "few reorders",
        "a cache for each process",
        "a process for each header",
        "warm-up",
        "kernels that name no instruction set",
        "few tiny calls",
        "tiny calls of next to no time",
        "longer calls",
        "a thread for each call",
        "bf16 from the start",
    ],
)  # fmt: skip
def test_what_is_as_it_should_be_is_no_finding(code: str, records: list[AnyRecord]) -> None:
    assert not found(code, *records)


# ---- all of them -----------------------------------------------------------------------------


def test_the_worst_come_first() -> None:
    records = [
        run("softmax", 9, kernel="ref:any"),
        line(HEADER),
        line(HEADER.replace("3.6", "3.7")),
    ]
    seen = cast("Findings", view("findings", records))
    assert [finding.severity for finding in seen.findings] == ["high", "low"]
    assert len(seen.codes) == len(finders())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((percent(share), text) for share, text in (
            (0, "0%"), (0.00001, "<0.1%"), (0.0042, "0.4%"), (0.099, "9.9%"), (0.32, "32%"), (1, "100%"),
        )),
        *((took(time), text) for time, text in (
            (12, "12 ns"), (1500, "1.5 us"), (2.5e6, "2.5 ms"), (61e9, "61 s"), (1070e9, "1,070 s"),
        )),
    ],
)  # fmt: skip
def test_shares_and_times_read_as_people_write_them(text: str, expected: str) -> None:
    assert text == expected


# ---- times that cannot be relied on ----------------------------------------------------------


def steady(count: int = 40, slow: int = 0, factor: float = 20, **more: Any) -> list[AnyRecord]:
    """Return calls of 1 ms, of which some took longer."""
    return [run(milliseconds=factor if n < slow else 1, **more) for n in range(count)][::-1]


def test_unsteady_times_come_before_all_else() -> None:
    records = [run("softmax", 500, kernel="ref:any"), *steady(slow=6)]
    seen = cast("Findings", view("findings", records)).findings
    assert [finding.code for finding in seen[:2]] == ["unsteady-times", "reference-implementation"]
    assert (seen[0].severity, seen[0].count) == ("medium", 6)
    assert seen[0].total_ns == pytest.approx(6 * 19e6)
    assert "median 1 ms" in seen[0].evidence[0]
    assert "longest 20 ms" in seen[0].evidence[0]


def test_unsteady_times_are_as_bad_as_their_share() -> None:
    assert one("unsteady-times", *steady(slow=2, factor=90)).severity == "high"
    assert one("unsteady-times", *steady(slow=1, factor=40)).count == 1


@pytest.mark.parametrize(
    "records",
    [
        steady(),
        steady(slow=20, factor=2.5),
        [run(milliseconds=90), *steady(39)],
        [run(milliseconds=90, thread=thread) for thread in range(9)]
        + [run(milliseconds=1, thread=thread) for thread in range(9) for _ in range(5)],
        steady(5, slow=2),
        [run(milliseconds=0.001 if n % 3 else 0.02) for n in range(60)],
        steady(slow=8, problem="*x64:64x64"),
        [run("eltwise", 400, problem="4x4"), *steady(20, slow=1, factor=5)],
    ],
    ids=[
        "steady",
        "two-speeds",
        "first-call",
        "first-call-of-each-thread",
        "few",
        "coarse-clock",
        "sizes-at-run-time",
        "small-share",
    ],
)
def test_times_that_nearly_are_unsteady(records: list[AnyRecord]) -> None:
    assert not found("unsteady-times", *records)


def test_runs_with_other_threads_in_one_log_are_apart() -> None:
    """A sweep over threads that was written into one log is neither unsteady nor far below itself."""
    problem = "1024x1024:1024x1024"
    sweep = [
        call
        for threads in (1, 16)
        for call in (
            line(HEADER),
            cpu(threads),
            *[run(milliseconds=64 / threads, problem=problem)] * 20,
        )
    ]
    for code in ("unsteady-times", "below-peak", "first-calls", "thread-count"):
        assert not found(code, *sweep)


def test_calls_without_a_time_and_a_single_call_give_nothing_away() -> None:
    whole = Machine(cpus=8, cores=8, roof=Roof(gflops=2000, gigabytes_per_second=99, threads=8))
    problem = "1x4096:4096x4096"
    untimed = [run(problem=problem, duration_ns=None) for _ in range(40)]
    alone = run(milliseconds=3, problem="1024x1024:1024x1024")
    for records in (untimed, [alone]):
        seen = cast("Findings", view("findings", [line(HEADER), cpu(8), *records], machine=whole))
        assert seen.findings == ()


# ---- threads ---------------------------------------------------------------------------------


def cpu(threads: int, runtime: str = "OpenMP", **more: Any) -> AnyRecord:
    return line(f"onednn_verbose,v1,info,cpu,runtime:{runtime},nthr:{threads}", **more)


def gemm(
    milliseconds: float = 1, threads: int = 2, size: int = 64, cnr: str = "OFF", **more: Any
) -> AnyRecord:
    return line(
        f"MKL_VERBOSE SGEMM(N,N,{size},{size},{size},0x1,0x2,{size},0x3,{size},0x4,0x5,{size})"
        f" {milliseconds}ms CNR:{cnr} Dyn:1 FastMM:1 TID:0  NThr:{threads}",
        **more,
    )


def machine(cpus: float, cores: int = 0, because: str = "online") -> Machine:
    return Machine(cpus=cpus, cores=cores or int(cpus), because=because)


def test_more_threads_than_a_quota_leaves() -> None:
    records = [cpu(16), *[run(milliseconds=50)] * 4, *[gemm(50, 16)] * 4]
    finding = one("thread-count", *records, machine=machine(4, because="quota"))
    assert finding.severity == "high"
    assert finding.seen == ("oneDNN had 16 threads and MKL had 16 threads; the CPU quota leaves 4 CPUs")
    assert not found("thread-count", *records, machine=machine(15.5, because="quota"))


def test_ranks_of_a_launcher_share_the_cpus() -> None:
    ranks = [
        call
        for rank in ("rank0", "rank1")
        for call in (cpu(8, source=rank), run(source=rank, prefix=f"[{rank}]: "))
    ]
    finding = one("thread-count", *ranks, machine=machine(8))
    assert "8 threads in each of 2 ranks; the machine has 8 CPUs" in finding.seen
    assert not found("thread-count", *ranks, machine=machine(16))


def test_far_fewer_threads_than_cores() -> None:
    records = [cpu(1), *[run(milliseconds=50)] * 4]
    finding = one("thread-count", *records, machine=machine(32, 16))
    assert finding.severity == "medium"
    assert finding.seen == (
        "oneDNN had 1 thread, called from 1 thread; the machine has 32 CPUs, which is 16 cores"
    )
    assert one("thread-count", *records).severity == "note"


@pytest.mark.parametrize(
    ("records", "cpus", "cores"),
    [
        ([cpu(16), *[run(milliseconds=50)] * 4], 32, 16),
        ([cpu(1), *[run(milliseconds=50, thread=n) for n in range(16)]], 32, 16),
        ([cpu(1), *[run(milliseconds=0.01)] * 400], 32, 16),
        ([*[line(HEADER)] * 16, cpu(1), *[run(milliseconds=50)] * 4], 32, 16),
        ([run(milliseconds=50)] * 4, 32, 16),
        ([line(str(gemm(80)).partition(" TID")[0])] * 4, 32, 16),
        ([cpu(1), *[run(milliseconds=50)] * 4], 1, 1),
    ],
    ids=[
        "one-a-core",
        "many-callers",
        "short-calls",
        "many-processes",
        "not-told",
        "not-told-by-mkl",
        "one-cpu",
    ],
)
def test_threads_that_are_as_they_should_be(records: list[AnyRecord], cpus: int, cores: int) -> None:
    assert not found("thread-count", *records, machine=machine(cpus, cores))


def test_mkl_with_fewer_threads_than_onednn_in_the_same_process() -> None:
    records = [cpu(8), *[run(milliseconds=50)] * 2, *[gemm(50, 1)] * 2]
    finding = one("thread-count", *records)
    assert "MKL had 1 thread in 2 calls, 50% of the time; oneDNN had 8" in finding.seen
    runs = [line(HEADER)] * 2
    assert not found("thread-count", *runs, *records)
    region = [gemm(50, 1, thread=thread) for thread in range(8)]
    assert not found("thread-count", cpu(8), *[run(milliseconds=50)] * 2, *region)


def test_mkls_sequential_layer_has_one_thread() -> None:
    text = MKL.format("Intel(R) Architecture processors").replace("intel_thread", "sequential")
    call = line(str(gemm(80)).partition(" TID")[0])
    assert one("thread-count", line(text), call, call, machine=machine(8)).severity == "medium"


def test_callers_at_the_same_time_with_a_pool_each() -> None:
    calls = [
        run(milliseconds=10, thread=thread, start_ns=n * 10_000_000, clock="epoch")
        for n in range(8)
        for thread in (1, 2, 3)
    ]
    finding = one("concurrent-callers", cpu(4), *calls)
    assert finding.severity == "low"
    assert "3.0 calls ran at the same time, each with up to 4 threads: about 12.0 in total" in finding.seen
    assert "parallel region" in finding.why
    several = [
        cpu(4, process=1),
        cpu(4, process=2),
        *[structs.replace(call, process=1 + (call.thread == 1)) for call in calls],
    ]
    assert one("concurrent-callers", *several).severity == "low"
    assert one("concurrent-callers", *several, machine=machine(4)).severity == "medium"
    assert not found("concurrent-callers", *several, machine=machine(12))


def test_pools_that_are_shared_or_callers_in_turn_are_no_finding() -> None:
    calls = [
        run(milliseconds=10, thread=thread, start_ns=n * 10_000_000, clock="epoch")
        for n in range(8)
        for thread in (1, 2, 3)
    ]
    assert not found("concurrent-callers", cpu(4, "threadpool"), *calls)
    assert not found("concurrent-callers", cpu(1), *calls)
    in_turn = [run(milliseconds=10, thread=n % 3, start_ns=n * 10_000_000, clock="epoch") for n in range(24)]
    assert not found("concurrent-callers", cpu(4), *in_turn)


def test_micro_kernels_and_parts_of_a_graph_run_side_by_side_with_one_thread_each() -> None:
    ukernel = (
        "onednn_verbose,v1,ukernel,exec,cpu,brgemm,,undef,src:bf16::blocked:ab::f0"
        " wei:bf16::blocked:ab::f0 dst:f32::blocked:ab::f0,,,64x64:64x64,10"
    )
    part = (
        "onednn_verbose,v1,graph,exec,cpu,100002,sdp,matmul;softmax;matmul,,in0_f32:1:strided:undef:2x2:2s1"
        " out0_f32:5:strided:undef:2x2:2s1,fpm:strict,sdp_decomp_kernel_t,dnnl_backend,20"
    )

    def at_once(text: str) -> list[AnyRecord]:
        return [
            line(text, thread=thread, start_ns=n * 10_000_000, clock="epoch")
            for n in range(8)
            for thread in range(4)
        ]

    matmul = str(run(milliseconds=10))
    assert found("concurrent-callers", cpu(4), *at_once(matmul), machine=machine(4))
    assert not found("concurrent-callers", cpu(4), *at_once(ukernel), machine=machine(4))
    assert not found("concurrent-callers", cpu(4), *at_once(matmul), line(part), machine=machine(4))


def test_processes_at_the_same_time_whose_mkl_has_a_pool_each() -> None:
    calls = [
        gemm(10, 4, process=process, start_ns=n * 10_000_000, clock="epoch")
        for n in range(8)
        for process in (1, 2, 3)
    ]
    finding = one("concurrent-callers", *calls, machine=machine(6))
    assert "of 3 processes ran at the same time, each with up to 4 threads: about 12.0" in finding.seen
    assert not found("concurrent-callers", *calls, machine=machine(12))
    serial = [structs.replace(call, start_ns=n * 10_000_000) for n, call in enumerate(calls)]
    assert not found("concurrent-callers", *serial, machine=machine(2))


def test_mkl_called_from_a_parallel_region_with_several_threads_each() -> None:
    calls = [gemm(5, 8, thread=thread) for thread in range(4)]
    finding = one("concurrent-callers", *calls)
    assert "from 4 threads of a parallel region (TID), with up to 8 threads each: 32" in finding.seen
    assert one("concurrent-callers", *calls, machine=machine(16)).severity == "high"
    assert not found("concurrent-callers", *calls, machine=machine(32))
    assert not found("concurrent-callers", *[gemm(5, 1, thread=thread) for thread in range(4)])
    assert not found("concurrent-callers", *[gemm(5, 8)] * 4)


# ---- work that is done slowly ----------------------------------------------------------------


def test_calls_far_below_others_of_the_trace() -> None:
    fast = [run(milliseconds=1, problem="1024x1024:1024x1024")] * 3
    slow = [run(milliseconds=20, problem="1024x1024:1024x2048")] * 3
    finding = one("below-peak", *fast, *slow)
    assert finding.count == 3
    assert "215 GFLOP/s; best of the same kind 2.15e+03" in finding.evidence[0]
    # Whether other programs had the CPUs all the while is not in a trace.
    assert "other programs" in finding.why and "idle machine" in finding.action
    near = [run(milliseconds=8, problem="1024x1024:1024x2048")] * 3
    assert not found("below-peak", *fast, *near)


def test_calls_far_below_the_machine() -> None:
    roof = Roof(gflops=2000, gigabytes_per_second=100, threads=8)
    calls = [cpu(8), *[run(milliseconds=20, problem="1024x1024:1024x1024")] * 3]
    finding = one("below-peak", *calls, machine=Machine(roof=roof))
    assert "107 GFLOP/s; this machine 2e+03" in finding.evidence[0]
    assert not found("below-peak", *calls)
    one_thread = [cpu(1), *calls[1:]]
    assert not found("below-peak", *one_thread, machine=Machine(roof=roof))


def test_copies_far_below_larger_ones() -> None:
    def copied(rows: int, milliseconds: float, target: str = "ba") -> AnyRecord:
        return run(
            "reorder",
            milliseconds,
            tensors=f"src:f32::blocked:ab::f0 dst:f32::blocked:{target}::f0",
            problem=f"{rows}x1024",
        )

    large, slow = [copied(2048, 1)] * 3, [copied(1024, 6, "AB16b16a")] * 3
    finding = one("below-peak", *large, *slow)
    assert finding.count == 3
    assert "1.4 GB/s; best of the same kind 16.8" in finding.evidence[0]
    in_the_cache = [copied(256, 0.1)] * 3
    assert not found("below-peak", *in_the_cache, *[copied(4096, 12)] * 3)
    gelu = [run("eltwise", 9, attributes="", problem="1024x1024", kernel="jit:avx2")] * 3
    assert not found("below-peak", *large, *gelu)


def test_one_fast_call_among_slow_ones_is_no_finding() -> None:
    """The machine was busy: another finding says so."""
    fast = [run(milliseconds=1, problem="1024x1024:1024x1024")] * 3
    disturbed = [run(milliseconds=n, problem="1024x1024:1024x2048") for n in (30, 30, 3)]
    assert not found("below-peak", *fast, *disturbed)
    memory_bound = [run(milliseconds=20, problem="16x4096:4096x4096")] * 3
    assert not found("below-peak", *fast, *memory_bound)
    bf16 = [run(milliseconds=20, tensors=BF16, problem="1024x1024:1024x1024")] * 3
    assert not found("below-peak", *fast, *bf16)


def test_products_with_one_vector_are_as_fast_as_memory() -> None:
    vectors = [run(milliseconds=2, problem="1x4096:4096x4096")] * 10
    finding = one("matrix-vector", *vectors, run(milliseconds=5))
    assert (finding.severity, finding.count) == ("medium", 10)
    assert "10 products with one vector took 20 ms, 80% of the time, at 33.6 GB/s" in (finding.seen)
    assert not found("matrix-vector", *[run(milliseconds=2, problem="8x4096:4096x4096")] * 10)
    assert not found("matrix-vector", *[run(milliseconds=2, problem="1x64:64x64")] * 10)
    gemv = "MKL_VERBOSE SGEMV(N,4096,4096,0x1,0x2,4096,0x3,1,0x4,0x5,1) 2.00ms CNR:OFF Dyn:1"
    assert one("matrix-vector", line(gemv)).count == 1


def transform(lengths: str, milliseconds: float = 1) -> AnyRecord:
    return line(
        f"MKL_VERBOSE FFT(scfi{lengths},tLim:1,desc:0x1) {milliseconds}ms CNR:OFF Dyn:1 FastMM:1"
        " TID:0  NThr:1"
    )


def test_transforms_of_prime_lengths() -> None:
    finding = one("fft-length", *[transform("1009*64", 4)] * 3, *[transform("1024*64")] * 3)
    assert (finding.severity, finding.count) == ("high", 3)
    assert "other lengths" in finding.seen
    assert finding.evidence[0] == "3 calls of FFT 1009*64 c64: 1009 -> 1024"
    assert "134 -> 135" in one("fft-length", transform("128x134")).evidence[0]
    for lengths in ("1024", "1000x77", "1001", "1088", "17", "2x31"):
        assert not found("fft-length", transform(lengths))


def test_a_fixed_branch_of_mkl() -> None:
    [finding] = found("mkl-cbwr", *[gemm(1, cnr="COMPATIBLE")] * 3, gemm(1))
    assert finding.severity == "high"
    assert "3 calls of MKL ran the branch COMPATIBLE: 3 ms, 75% of the time" in finding.seen
    known = MKL.format("Intel(R) Advanced Vector Extensions 512 (Intel(R) AVX-512) enabled")
    assert one("mkl-cbwr", line(known), gemm(1, cnr="AVX2")).severity == "medium"
    assert one("mkl-cbwr", gemm(1, cnr="AUTO")).severity == "note"
    assert not found("mkl-cbwr", gemm(1))


def test_a_cache_that_is_off_is_not_low() -> None:
    made = run(event="create:cache_miss", milliseconds=0.001)
    finding = one("cache-misses", line(HEADER), *[made, run(milliseconds=9)] * 5)
    assert finding.severity == "medium"
    assert finding.seen.startswith("the primitive cache is off or tiny")
    assert "unset ONEDNN_PRIMITIVE_CACHE_CAPACITY" in finding.action
    hit = run(event="create:cache_hit", milliseconds=0.001)
    assert found("cache-misses", line(HEADER), *[made, run(milliseconds=9)] * 5, hit) == []
    assert found("cache-misses", *[made, run(milliseconds=9)] * 5) == []
    slow = run(event="create:cache_miss", milliseconds=0.2)
    assert one("cache-misses", line(HEADER), *[slow, run(milliseconds=9)] * 5, hit).severity == "low"
    of_a_process = [structs.replace(call, process=7) for call in [made, run(milliseconds=9)] * 5]
    assert one("cache-misses", *of_a_process).severity == "medium"
    processes = [line(HEADER)] * 5 + [made] * 5 + [run(milliseconds=9)] * 5
    assert found("cache-misses", *processes) == []


def test_generic_kernels_of_mkl_are_normal_on_amd() -> None:
    generic = line(MKL.format("Intel(R) Architecture processors"))
    finding = one("generic-mkl-kernel", generic, machine=Machine(vendor="AMD"))
    assert finding.severity == "note"
    assert "Zen" in finding.why and "OpenBLAS" in finding.action
    on_intel = one("generic-mkl-kernel", generic, gemm(), machine=Machine(vendor="Intel"))
    assert on_intel.severity == "medium"
    assert "AMD" not in on_intel.why


def test_the_machine_is_that_of_the_probes() -> None:
    limits = {"effective_cpus_exact": 12.0, "effective_cpus_because": "affinity"}
    made = machine_of({"threads_per_core": 2, "vendor": "Intel"}, limits)
    assert (made.cpus, made.cores, made.vendor) == (12.0, 6, "Intel")
    assert made.cpus_left == "the affinity mask leaves 12 CPUs"
    hybrid = {"threads_per_core": 2, "kinds": [{"cores": 4}, {"cores": 16}]}
    assert machine_of(hybrid, limits).cores == 4

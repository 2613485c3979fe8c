"""Lines of oneDNN become records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlbackends.base.registry import load
from mlbackends.model.trace import (
    AnyRecord,
    Check,
    Dispatch,
    GraphPartition,
    Header,
    Info,
    Message,
    Primitive,
    Ukernel,
)

TRACES = Path(__file__).resolve().parents[3] / "traces"
EXEC = (
    "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_bf16,undef,"
    "src:bf16::blocked:ab::f0 wei:bf16::blocked:ba::f0 dst:f32::blocked:ab::f0,"
    "attr-scratchpad:user attr-post-ops:sum,,128x512:512x256,0.141113"
)


def parse(line: str) -> AnyRecord:
    """Return the record of a line that has one."""
    found: AnyRecord | None = load("mlbackends.tracing.formats", "onednn").parse(line)
    assert found is not None, line
    return found


def trace_lines() -> list[str]:
    """Return the different lines of all logs, from their marker on."""
    found = set()
    for path in TRACES.glob("*.log"):
        for line in path.read_text().splitlines():
            at = line.find("nn_verbose,")
            if at >= 0 and not line.startswith("#"):
                start = max(line.rfind(" ", 0, at), -1) + 1
                found.add(line[start:])
    assert len(found) > 300
    return sorted(found)


def test_every_line_of_every_log_becomes_a_record_that_is_the_line() -> None:
    for line in trace_lines():
        assert str(parse(line)) == line


def test_the_fields_of_an_execution() -> None:
    record = parse(EXEC)
    assert isinstance(record, Primitive)
    assert (record.event, record.cache, record.counted) == ("exec", "", True)
    assert record.duration_ns == pytest.approx(141113)
    assert record.signature.engine == "cpu"
    assert record.signature.attributes == "attr-scratchpad:user attr-post-ops:sum"
    assert record.signature.propagation == "undef"
    assert record.operation == "matmul"
    assert record.shape == "128x512:512x256"
    assert record.dtype == "bf16:bf16:f32"
    assert record.isa == "avx512_core_bf16"
    assert record.flops == 2 * 128 * 512 * 256
    assert record.bytes == 2 * (128 * 512 + 512 * 256) + 4 * 128 * 256
    assert record.gflops == pytest.approx(2 * 128 * 512 * 256 / 141113)


def test_calls_that_are_alike_share_their_signature_and_what_follows_from_it() -> None:
    first, second = parse(EXEC), parse(EXEC.replace("0.141113", "0.2"))
    assert isinstance(first, Primitive)
    assert isinstance(second, Primitive)
    assert first.signature is second.signature or first.signature == second.signature
    assert second.duration_ns == pytest.approx(200_000)
    assert first.derived == second.derived


def test_fields_put_together_are_the_line_again() -> None:
    seen = 0
    for line in trace_lines():
        record = parse(line)
        if isinstance(record, Primitive | Ukernel) and record.start_ns is None:
            fields = record.signature
            parts = [
                fields.engine,
                fields.primitive,
                fields.implementation,
                fields.propagation,
                fields.memory_descriptors,
                fields.attributes,
                fields.auxiliary,
                fields.problem,
            ]
            told = f"{record.event}:{record.cache}".rstrip(":")
            middle = ",".join(parts[1:] if not fields.engine else parts)
            if fields.component == "graph":  # its tensors are printed in another order
                continue
            if line.startswith("mkldnn_verbose") or f",{told},{middle}" not in line:
                middle = ",".join(part for part in parts if part)
                line = re.sub(",,+", ",", line)  # these versions lack fields
            assert f",{told},{middle}" in line
            seen += 1
    assert seen > 150


def test_time_stamps_are_nanoseconds_since_the_epoch() -> None:
    record = parse(EXEC.replace("v1,", "v1,1795258901075.670898,", 1))
    assert (record.start_ns, record.clock) == (1795258901075670898, "epoch")
    assert record.raw.startswith("onednn_verbose,v1,1795258901075.670898,")


@pytest.mark.parametrize("stamp", ["1795258901_75.670898", "1795258901075670898", "17.6x"])
def test_a_call_whose_stamp_is_damaged_is_a_call(stamp: str) -> None:
    behind = "primitive,exec,cpu,matmul,ref,undef,src:f32::blocked:ab::f0,,,8x8:8x8,2"
    line = f"onednn_verbose,v1,{stamp},{behind}"
    found = parse(line)
    assert isinstance(found, Primitive)
    assert (str(found), found.start_ns, found.clock, found.duration_ns) == (line, None, "", 2e6)
    assert found.key == line.replace(f"{stamp},", "").rpartition(",")[0]


def test_decimal_commas_are_read_as_points() -> None:
    stamped = EXEC.replace("v1,", "v1,1795258935036,902100,", 1).replace("0.141113", "5,98682")
    record, plain = parse(stamped), parse(EXEC)
    assert isinstance(record, Primitive)
    assert isinstance(plain, Primitive)
    assert record.start_ns == 1795258935036902100
    assert record.duration_ns == pytest.approx(5986820)
    assert record.signature == plain.signature


@pytest.mark.parametrize(
    ("tail", "shape", "nanoseconds"),
    [
        ("alg:eltwise_relu alpha:0 beta:0,128,7", "128", 7e6),
        ("alg:eltwise_relu alpha:0 beta:0,128,0,5", "128", 5e5),
        ("alg:eltwise_relu alpha:0,1 beta:0,128,7", "128", 7e6),
        ("alg:eltwise_relu alpha:0,1 beta:0,5,128,0,25", "128", 2.5e5),
        ("alg:eltwise_relu alpha:0 beta:0,2x3,1,5e-05", "2x3", 15.0),
    ],
)
def test_a_comma_is_told_from_a_separator_by_what_the_fields_can_be(
    tail: str, shape: str, nanoseconds: float
) -> None:
    head = "onednn_verbose,v1,primitive,exec,cpu,eltwise,jit:avx2,forward_training"
    record = parse(f"{head},data:f32::blocked:a::f0,,{tail}")
    assert record.shape == shape
    assert record.duration_ns == pytest.approx(nanoseconds)


def test_a_creation_says_how_the_cache_was_found_and_counts_for_no_total() -> None:
    record = parse(EXEC.replace("exec,", "create:cache_miss,"))
    assert isinstance(record, Primitive)
    assert (record.event, record.cache) == ("create", "cache_miss")
    assert (record.executed, record.nested, record.counted, record.gflops) == (
        False,
        False,
        False,
        None,
    )


@pytest.mark.parametrize("event", ["create_nested:cache_hit", "exec:external"])
def test_what_is_inside_another_call_is_nested_and_not_counted(event: str) -> None:
    record = parse(EXEC.replace("exec,", f"{event},", 1))
    assert (record.nested, record.counted) == (True, False)


MADE = (TRACES / "made-from-the-grammar.log").read_text().splitlines()


def made(words: str) -> AnyRecord:
    """Return the record of the one line that was put together from the sources and has these words."""
    [line] = [line for line in MADE if words in line]
    return parse(line)


@pytest.mark.parametrize("words", ["alg:eltwise_relu:0:0,2x3x4x9", "2x3x4x8", "gpu:0,sdpa"])
def test_a_gpu_that_prints_no_time_ran_for_a_time_that_is_not_known(words: str) -> None:
    record = made(words)
    assert isinstance(record, Primitive)
    assert (record.duration_ns, record.counted, record.gflops) == (None, True, None)
    assert record.signature.engine.startswith("gpu")
    assert record.shape.count("x") > 2
    assert load("mlbackends.tracing.formats", "onednn").parse(str(record).replace("gpu", "cpu")) is None


@pytest.mark.parametrize(
    ("words", "operation", "shape", "implementation", "nanoseconds"),
    [
        ("exec,,0.3", "", "", "", 3e5),
        ("4x16x20x20", "reorder", "4x16x20x20", "", 590820),
        ("cpu,reorder,undef", "reorder", "2x16x20x20", "", 5e5),
        ("3x4:3x4 3x8", "concat", "3x4:3x4 3x8", "simple:any", 25e4),
        ("zero_pad", "zero_pad", "2x3x4x5", "ocl:simple:any", 25e4),
        ("1.67134e+12", "gemm_api", "96x512:512x64", "", 359131),
        ("2x512:512x512", "gemm_api", "2x512:512x512", "", 359131),
    ],
)
def test_lines_of_versions_that_lack_a_field(
    words: str, operation: str, shape: str, implementation: str, nanoseconds: float
) -> None:
    record = made(words)
    assert isinstance(record, Primitive)
    assert (record.operation, record.shape) == (operation, shape)
    assert record.implementation == implementation
    assert record.duration_ns == pytest.approx(nanoseconds)
    assert record.key == str(record).replace("1.67134e+12,", "").rpartition(",")[0]


def test_padding_on_a_gpu_tells_its_type() -> None:
    assert made("zero_pad").dtype == "f32"


def test_what_another_library_did_inside_a_primitive_has_only_a_name() -> None:
    record = made("CpuGemmAssemblyWrapperKernel")
    assert (record.operation, record.nested, record.duration_ns) == ("", True, 25e4)
    assert record.implementation.endswith("a64_hybrid_fp32_mla_6x16")


@pytest.mark.parametrize(
    ("words", "engine", "shape", "dtype"),
    [("_gen_index(", "gpu", "1x16x96x96", "f32:s32"), ("_host_scalar(", "cpu", "1", "f32")],
)
def test_a_kernel_that_a_graph_runs_by_itself_is_work(
    words: str, engine: str, shape: str, dtype: str
) -> None:
    record = made(words)
    assert isinstance(record, Primitive)
    assert (record.operation, record.shape, record.dtype) == (words[:-1], shape, dtype)
    assert (record.signature.engine, record.counted, record.bytes) == (engine, True, None)
    assert record.key == str(record).rpartition(",")[0]
    reader = load("mlbackends.tracing.formats", "onednn")
    assert reader.parse(str(record).rpartition(",")[0]) is None


def test_errors_of_a_gpus_runtime_and_remarks_for_authors_are_messages() -> None:
    error, remark = made("ocl_error"), made("kernel options")
    assert isinstance(error, Message)
    assert isinstance(remark, Message)
    assert (error.level, error.origin, error.text) == ("error", "ocl_error", "-5")
    assert remark.level == "debug"


def test_a_partition_is_not_counted_beside_its_primitives() -> None:
    for line in trace_lines():
        record = parse(line)
        if isinstance(record, GraphPartition):
            assert not record.counted
            assert record.signature.backend == "dnnl_backend"
            assert record.signature.implementation.endswith("kernel_t") or "graph_" in line
            assert record.duration_ns is not None


def test_a_scratchpad_is_a_field_of_its_own() -> None:
    line = next(line for line in trace_lines() if "graph,exec" in line and "scratchpad:" in line)
    record = parse(line)
    assert isinstance(record, GraphPartition)
    assert record.signature.scratchpad.startswith("library:")
    assert record.signature.fpmath_mode == "strict"
    assert record.signature.operations == ("qk", "scale", "softmax", "pv")


def test_the_reason_of_a_refusal_may_hold_commas() -> None:
    record = parse(
        "onednn_verbose,v1,primitive,create:dispatch,convolution,unsupported feature for padding: "
        "f,t,l padding not supported,src/cpu/x64/jit_avx512_common_1x1_conv_kernel.cpp:680"
    )
    assert isinstance(record, Dispatch)
    assert record.reason == "unsupported feature for padding: f,t,l padding not supported"
    assert record.place == "src/cpu/x64/jit_avx512_common_1x1_conv_kernel.cpp:680"
    assert (record.origin, record.refused) == ("convolution", None)


def test_a_refusal_may_tell_the_implementation_and_the_problem() -> None:
    record = parse(
        "onednn_verbose,v1,primitive,create:dispatch,matmul,cpu,matmul,brg_matmul:avx10_1_512_amx,undef,"
        "src:f32::blocked:ab::f0 wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,128x256:256x64,"
        "unsupported isa,D:\\build\\src\\cpu\\x64\\matmul\\brgemm_matmul.cpp:114"
    )
    assert isinstance(record, Dispatch)
    assert record.refused is not None
    assert record.refused.implementation == "brg_matmul:avx10_1_512_amx"
    assert (record.shape, record.isa, record.reason) == (
        "128x256:256x64",
        "avx10_1_512_amx",
        "unsupported isa",
    )
    assert record.place.endswith("brgemm_matmul.cpp:114")


def test_a_complaint_about_arguments() -> None:
    record = parse(
        "onednn_verbose,v1,primitive,create:check,matmul,dimension src:1 is inconsistent with "
        "weights:0,src/common/matmul.cpp:204"
    )
    assert isinstance(record, Check)
    assert (record.event, record.origin) == ("create:check", "matmul")
    assert record.reason == "dimension src:1 is inconsistent with weights:0"


def test_a_complaint_at_execution_is_no_execution() -> None:
    record = parse("onednn_verbose,v1,primitive,exec:check,matmul,no memory for src,src/common/memory.cpp:20")
    assert isinstance(record, Check) and record.event == "exec:check"
    assert not record.executed and not record.counted


@pytest.mark.parametrize("event", ["create:start", "exec:start"])
def test_the_start_of_a_call_is_neither_a_creation_nor_an_execution(event: str) -> None:
    line = f"onednn_verbose,v1,primitive,{event},cpu,matmul,brg:avx2,undef,src:f32::blocked:ab::f0,,,4x4:4x4"
    record = parse(line)
    assert isinstance(record, Primitive)
    assert (record.event, record.cache_state, record.duration_ns) == (event, "", None)
    assert not record.executed and not record.counted and record.nested


def test_reorders_of_dnnl_1_0_have_no_attributes() -> None:
    tensors = "src_f32::blocked:abcd:f0 dst_f32::blocked:aBcd8b:f0"
    record = parse(f"dnnl_verbose,exec,cpu,reorder,jit:uni,undef,{tensors},num:1,2x16x7x7,0.46")
    assert isinstance(record, Primitive)
    assert (record.operation, record.shape, record.duration_ns) == ("reorder", "2x16x7x7", 460_000)
    assert record.bytes == 2 * 4 * 2 * 16 * 7 * 7


@pytest.mark.parametrize("key", ["1x16x64x384", "1x16x384x64"])
def test_attention_has_the_work_of_its_two_products(key: str) -> None:
    tensors = " ".join(f"{name}:f16:a:blocked:abcd::f0" for name in ("query", "key", "val", "dst"))
    record = parse(
        f"onednn_verbose,v1,primitive,exec,gpu,sdpa,ocl:micro:any,undef,{tensors},,"
        f"alg:softmax_accurate,1x16x384x64:{key}:1x16x384x32,0.4"
    )
    assert isinstance(record, Primitive)
    assert record.flops == 2 * 16 * 384 * 384 * (64 + 32)
    assert record.bytes == 2 * 16 * 384 * (64 + 64 + 32 + 32)


def test_an_error_and_its_place() -> None:
    record = parse(
        "onednn_verbose,v1,common,error,runtime,SYCL cpu devices queried but not found,"
        "src/common/engine.cpp:111"
    )
    assert isinstance(record, Message)
    assert (record.level, record.origin, record.component) == ("error", "runtime", "common")
    assert record.text == "SYCL cpu devices queried but not found"


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("mkldnn_verbose,info,Intel MKL-DNN v0.21.5 (commit 7d2f)", "0.21.5"),
        ("dnnl_verbose,info,DNNL v1.2.0 (commit 70f8)", "1.2.0"),
        ("onednn_verbose,v1,info,oneDNN v3.7.3 (commit N/A)", "3.7.3"),
        ("mkldnn_verbose,info,Intel(R) MKL-DNN v0.18.1 (Git Hash 0f1e),Intel(R) AVX2", "0.18.1"),
    ],
)
def test_a_header_names_the_version(line: str, version: str) -> None:
    record = parse(line)
    assert isinstance(record, Header)
    assert record.version == version
    assert record.facts["commit"]


def test_what_the_library_tells_of_itself_is_taken_apart() -> None:
    record = parse("onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:2")
    assert isinstance(record, Info)
    assert record.topic == "cpu"
    assert record.values == {"runtime": "OpenMP", "nthr": "2"}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "onednn_verbose",
        "onednn_verbose,",
        "onednn_verbose,v1",
        "onednn_verbose,v1,",
        "onednn_verbose,v1,primitive",
        EXEC[:-9],
        EXEC[:60],
        EXEC.replace(",0.141113", ",nan"),
        EXEC.replace(",0.141113", ",-1"),
        EXEC.replace(",0.141113", ",soon"),
        EXEC + EXEC,
        EXEC + ",extra words",
        "onednn_verbose,v1,primitive,create:dispatch,convolution,unsupported form",
        "onednn_verbose,v1,info,oneDNN v3.6.2 (commit 28d6967244",
        "onednn_verbose is a variable",
    ],
)
def test_what_does_not_keep_to_the_grammar_is_no_record(line: str) -> None:
    assert load("mlbackends.tracing.formats", "onednn").parse(line) is None


def test_a_line_that_is_cut_anywhere_raises_nothing() -> None:
    tracer = load("mlbackends.tracing.formats", "onednn")
    for line in trace_lines()[::7]:
        for end in range(len(line)):
            tracer.parse(line[:end])


def test_the_environment_speaks_to_old_and_new_versions() -> None:
    tracer = load("mlbackends.tracing.formats", "onednn")
    asked = tracer.environment(level="dispatch", components="matmul")
    assert asked["ONEDNN_VERBOSE"] == "2,dispatch,filter=matmul"
    assert asked["DNNL_VERBOSE"] == asked["MKLDNN_VERBOSE"] == "2"
    assert asked["ONEDNN_VERBOSE_TIMESTAMP"] == "1"
    assert tracer.environment(level="exec", timestamps=False)["ONEDNN_VERBOSE"] == "1"


def test_a_cut_agrees_with_the_grammar() -> None:
    cut = load("mlbackends.tracing.formats", "onednn").cut
    seen = 0
    for line in trace_lines():
        record = parse(line)
        short = cut(line.encode())
        plain = line.startswith("onednn_verbose,v1") and not re.search(r"v1,\d+,\d{6},", line)
        if not isinstance(record, Primitive) or record.duration_ns is None:
            continue
        if record.signature.attributes != "" and plain:
            assert short == (record.key.encode(), record.duration_ns, record.start_ns)
            seen += 1
    assert seen > 100

"""`--where`, `--skip-first` and `--group-by`: what they let through, and what they say when asked wrongly."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput
from mlbackends.base.registry import load
from mlbackends.model.trace import Record, Text
from mlbackends.tracing import fields
from mlbackends.tracing.filters import after_first, grouping, where
from mlbackends.tracing.reader import records

MATMUL = (
    "onednn_verbose,v1,primitive,exec,cpu,matmul,brg_matmul:avx512_core_bf16,undef,"
    "src:bf16::blocked:ab::f0 wei:bf16::blocked:ba::f0 dst:bf16::blocked:ab::f0,"
    "attr-scratchpad:user,,128x512:512x256,0.25"
)
POOLING = (
    "onednn_verbose,v1,primitive,exec,cpu,pooling,simple_nchw:any,forward_inference,"
    "src:f32::blocked:abcd::f0 dst:f32:a:blocked:abcd::f0,,alg:pooling_max,"
    "mb4ic3_ih64oh32kh2sh2dh0ph0_iw64ow32kw2sw2dw0pw0,0.5"
)
SGEMM = (
    "MKL_VERBOSE SGEMM(N,N,512,256,64,0x7f2c,0x5583,512,0x5584,64,0x7f2d,0x5585,512)"
    " 1.50us CNR:OFF Dyn:1 FastMM:1 TID:3  NThr:1"
)


def record(line: str, **more: Any) -> Record:
    parsed = load("mlbackends.tracing.formats", "mkl" if line.startswith("MKL") else "onednn").parse(line)
    assert isinstance(parsed, Record)
    return type(parsed)(**{name: getattr(parsed, name) for name in parsed.__struct_fields__} | more)


RECORDS = [record(MATMUL), record(POOLING), record(SGEMM), Text(raw="hello\n")]


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("dtype=bfloat16", ["matmul"]),
        ("dtype=BF16", ["matmul"]),
        ("dtype~bfloat16", ["matmul"]),
        ("dtype=fp32", ["pooling", "SGEMM"]),
        ("dtype!=torch.float32", ["matmul", "hello"]),
        ("dtype=f32", ["pooling", "SGEMM"]),
    ],
)
def test_an_element_type_goes_by_any_of_its_names(text: str, operations: list[str]) -> None:
    assert kept(text) == operations


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("fp16:int8:float32", "f16:s8:f32"),
        ("uint8", "u8"),
        ("complex64", "c64"),
        ("bool", "bool"),
        ("f8_e4m3", "f8_e4m3"),
        ("any", "any"),
    ],
)
def test_element_types_are_written_as_traces_write_them(typed: str, name: str) -> None:
    assert fields.trace_types(typed) == name


def kept(*texts: str) -> list[str]:
    return [call.operation or call.raw.strip() for call in filter(where(*texts), RECORDS)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("operation=matmul", ["matmul"]),
        ("operation == matmul", ["matmul"]),
        ("operation!=matmul", ["pooling", "SGEMM", "hello"]),
        ("duration_ns>1us", ["matmul", "pooling", "SGEMM"]),
        ("duration_ns>=0.25ms", ["matmul", "pooling"]),
        ("duration_ns = 1500", ["SGEMM"]),
        ("duration_ns < 1ms and tracer=onednn", ["matmul", "pooling"]),
        ("shape~128x512", ["matmul"]),
        ("shape~(128|64)x5", ["matmul"]),
        ("shape ~ '64 |x256$'", ["matmul"]),
        ("shape!~x", ["pooling", "SGEMM", "hello"]),
        ("slow_path", ["pooling"]),
        ("not slow_path and executed", ["matmul", "SGEMM"]),
        ("operation=matmul or operation=SGEMM", ["matmul", "SGEMM"]),
        ("(operation=matmul or slow_path) and duration_ns>0.3ms", ["pooling"]),
        ("operation=matmul or slow_path and duration_ns>9ms", ["matmul"]),
        ("not (tracer=mkl or tracer=onednn)", ["hello"]),
        ("NOT tracer=mkl AND executed", ["matmul", "pooling"]),
        ("arguments.m=512", ["SGEMM"]),
        ("arguments.m>=256", ["SGEMM"]),
        ("arguments.m>1k", []),
        ("state.CNR=OFF", ["SGEMM"]),
        ("thread=3", ["SGEMM"]),
        ("thread=none", ["matmul", "pooling", "hello"]),
        ("thread!=none", ["SGEMM"]),
        ("thread!=3", ["matmul", "pooling", "hello"]),
        ("implementation=none", ["SGEMM", "hello"]),
        ("flops>1M", ["matmul", "SGEMM"]),
        ("bytes>100KiB", ["matmul", "SGEMM", "pooling"]),
        ("kind=text", ["hello"]),
        ("propagation=forward_inference", ["pooling"]),
        ("duration-ns>0.3ms", ["pooling"]),
        ("counted=true", ["matmul", "pooling", "SGEMM"]),
        ("counted!=yes", ["hello"]),
        ('operation="matmul"', ["matmul"]),
        ("operation=and", []),
        ("", ["matmul", "pooling", "SGEMM", "hello"]),
    ],
)
def test_an_expression_lets_through(text: str, found: list[str]) -> None:
    assert sorted(kept(text)) == sorted(found)


def test_several_expressions_must_all_hold() -> None:
    assert kept("tracer=onednn", "duration_ns>0.3ms") == ["pooling"]


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("oparation=matmul", "no field 'oparation'", "did you mean 'operation'?"),
        ("duration>1", "no field 'duration'", "did you mean 'duration_ns'?"),
        ("zzzzz=1", "no field 'zzzzz'", "`backends trace show --help` lists them all"),
        ("arguments=1", "is a table", "arguments.m"),
        ("operation=matmul tracer=mkl", "and, or, or the end", ""),
        ("operation=", "expected a value, found the end", ""),
        ("(operation=matmul", "expected ')', found the end", ""),
        ("operation=matmul)", "and, or, or the end", ""),
        ("operation='matmul", "a second '", ""),
        ("operation=matmul and", "an operand is missing after 'and'", ""),
        ("operation=matmul or not ", "an operand is missing after 'not'", ""),
        ("m>100", "no field 'm'", "did you mean 'arguments.m'?"),
        ("fastmm=1", "no field 'fastmm'", "did you mean 'state.FastMM'?"),
        ("operation=matmul and )", "expected a field", ""),
        ("shape~[", "not a regular expression", ""),
        ("operation<matmul", "is a text", "!~"),
        ("duration_ns>fast", "duration_ns is a number", "us"),
        ("duration_ns>1parsec", "duration_ns is a number", "us"),
        ("flops>1ms", "flops is a number", "GiB"),
        ("counted=perhaps", "is true or false", ""),
        ("counted>1", "is true or false", ""),
        ("__class__=1", "no field", ""),
        ("(" * 60 + "executed" + ")" * 60, "more than 50 parentheses", ""),
        ("x" * 20_000, "10000 are allowed", ""),
    ],
)
def test_what_cannot_be_understood_is_told_with_what_is_near(text: str, said: str, hint: str) -> None:
    with pytest.raises(BadInput) as caught:
        where(text)
    assert said in str(caught.value)
    assert hint in caught.value.hint


def test_an_expression_knows_the_fields_that_it_reads() -> None:
    assert where("operation=matmul", "shape~x").fields == {"operation", "shape"}


@given(st.text(max_size=200))
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    try:
        test = where(text)
    except BadInput:
        return
    for call in RECORDS:
        assert test(call) in {True, False}


@given(st.lists(st.sampled_from(["not", "and", "or", "(", ")", "executed", "thread>1", "'"])))
def test_any_order_of_words_is_an_expression_or_is_refused(words: list[str]) -> None:
    try:
        test = where(" ".join(words))
    except BadInput:
        return
    assert test(RECORDS[0]) in {True, False}


def test_many_nots_need_no_stack() -> None:
    assert where("not " * 1001 + "slow_path")(RECORDS[0]) is True
    assert sys.getrecursionlimit() > 100


def test_the_first_calls_of_each_kind_are_skipped() -> None:
    calls = [record(MATMUL), record(POOLING), record(MATMUL), record(MATMUL), Text(raw="x")]
    left = list(after_first(calls, 1))
    assert [call.operation for call in left] == ["matmul", "matmul", ""]
    assert list(after_first(calls, 0)) == calls


def test_each_process_has_first_calls_of_its_own() -> None:
    calls = [record(MATMUL, process=number) for number in (1, 2, 1, 2)]
    assert [call.process for call in after_first(calls, 1)] == [1, 2]


def test_each_thread_has_first_calls_of_its_own() -> None:
    calls = [record(MATMUL, process=1, thread=number) for number in (1, 2, 1, 1, 2)]
    assert [call.thread for call in after_first(calls, 1)] == [1, 1, 2]


def test_an_expression_knows_what_it_compares_by_equality() -> None:
    assert where("operation=matmul or isa!=x", "shape == a").equals == (
        ("operation", "matmul"),
        ("shape", "a"),
    )


def test_the_time_of_day_in_a_prefix_does_not_make_another_origin() -> None:
    calls = list(
        records(f"2026-11-21T16:35:5{second}.123456789Z stdout F {MATMUL}\n".encode() for second in range(3))
    )
    assert len(list(after_first(calls, 1))) == 2
    assert {fields.read_text("source")(call) for call in calls} == {""}


def test_less_than_no_calls_cannot_be_skipped() -> None:
    with pytest.raises(BadInput, match="-1 calls"):
        after_first([], -1)


def test_a_grouping_is_a_list_of_fields() -> None:
    assert grouping("operation, dtype,operation") == ("operation", "dtype")
    with pytest.raises(BadInput, match="nothing to group by"):
        grouping(" , ")
    with pytest.raises(BadInput, match="no field 'operatoin'"):
        grouping("operatoin")


@pytest.mark.parametrize("name", fields.NAMES)
def test_every_field_can_be_read_of_every_kind_of_record(name: str) -> None:
    for call in RECORDS:
        fields.read(name)(call)
        assert isinstance(fields.read_text(name)(call), str)

"""What the program asked for tells its calls apart; what the library chose does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbackends.base.registry import load
from mlbackends.model.trace import Record
from mlbackends.tracing import fields, reader
from mlbackends.tracing.parameters import parameters

TRACES = Path(__file__).resolve().parents[2] / "traces"
PRODUCT = "src:f32::blocked:ab::f0 wei:f32::blocked:ba::f0"
HEAD = "onednn_verbose,v1,primitive,exec,"
PLAIN = "src:f32::blocked:abcd::f0 wei:f32:a:blocked:ABcd16b16a::f0"


def of(line: str) -> str:
    tracer = "mkl" if line.startswith("MKL") else "onednn"
    record = load("mlbackends.tracing.formats", tracer).parse(line)
    assert isinstance(record, Record), line
    return parameters(record)


@pytest.mark.parametrize(
    ("fields_", "words"),
    [
        (f"cpu,convolution,jit,backward_weights,{PLAIN} bia:f32:a:blocked:a::f0,,alg:convolution_auto,8",
         "bia bwd_w"),
        (f"cpu,convolution,ref,backward_data,{PLAIN} bia:undef::undef:::,attr-scratchpad:user,,8", "bwd_d"),
        ("cpu,reorder,ref,undef,src:f32::blocked:ab::f0 dst:s8::blocked:Ba8b::f1:s8m2,,,8x8",
         "ab->Ba8b:f1:s8m2"),
        (f"cpu,matmul,ref,undef,{PRODUCT},attr-post-ops:sum+eltwise_relu,,8x8:8x8",
         "wei:ba post-ops:sum+eltwise_relu"),
        ("cpu,eltwise,ref,forward_inference,data:f32::any:::,,alg:eltwise_clip alpha:0 beta:6,8x8",
         "clip beta:6 fwd_i"),
        ("gpu,sum,ref,undef,src:f32::blocked:ab::f0,,,8x8", "gpu"),
    ],
)  # fmt: skip
def test_of_a_primitive_it_is(fields_: str, words: str) -> None:
    assert of(f"{HEAD}{fields_},0.5") == words


def test_attributes_are_spelled_alike_for_all_versions() -> None:
    call = "cpu,matmul,ref,undef,src_f32::blocked:ab:f0"
    old = of(f"dnnl_verbose,exec,{call},post_ops:'sum;eltwise_relu;' ,,8x8:8x8,0.5")
    new = of(f"onednn_verbose,exec,{call},attr-post-ops:sum+eltwise_relu ,,8x8:8x8,0.5")
    assert old == new == "post-ops:sum+eltwise_relu"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("SGEMM(T,n,50,8,7,0x1,0x2,7,0x3,7,0x4,0x5,50)", "T,N"),
        ("SGEMM(T,N,50,8,7,0x1,0x2,21,0x3,7,0x4,0x5,50)", "T,N lda:21"),
        ("DSYEVD(V,U,12,0x1,12,0x2,0x3,289,0x4,63,0)", "V,U"),
        ("SAXPY(9,0x1,0x2,3,0x3,1)", "incx:3"),
        ("FFT(dcbi1024,tLim:1,desc:0x55d3)", "dcbi1024"),
        ("unheard(1,0x2,3)", "1,3"),
    ],
)
def test_of_a_routine_it_is(call: str, words: str) -> None:
    assert of(f"MKL_VERBOSE {call} 1.50us CNR:OFF Dyn:1 FastMM:1") == words


@pytest.mark.parametrize("log", sorted(path.name for path in TRACES.glob("*.log")))
def test_every_record_can_be_asked(log: str) -> None:
    read = fields.read_text("parameters")
    for record in reader.read(str(TRACES / log)):
        words = read(record)
        assert "\n" not in words
        assert "0x*" not in words

"""The benchdnn command of a line, driver by driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base.registry import load
from mlbackends.model.trace import Primitive
from mlbackends.tracing.repro.benchdnn import command

if TYPE_CHECKING:
    from mlbackends.tracing.repro.benchdnn import Command

F32 = "src:f32::blocked:ab::f0 wei:f32::blocked:ba::f0"
CASES = [
    ((f"cpu,matmul,jit,undef,{F32} bia:f32::blocked:ab::f0_mask2 dst:bf16::blocked:ab::f0,"
     "attr-scratchpad:user attr-post-ops:eltwise_relu:0.5+binary_add:f32:2,,128x512:512x256"),
     ("--matmul --engine=cpu --dt=f32:f32:bf16 --stag=ab --wtag=ba --dtag=ab --bia-dt=f32"
     " --bia_mask=2 --attr-scratchpad=user --attr-post-ops=relu:0.5+add:f32:2 128x512:512x256")),
    (("cpu,matmul,jit,undef,src:f32::blocked:ab::f0 wei:f32:a:any:any::f0 dst:f32::blocked:ab::f0,"
     ",,m128n64k256"),
     "--matmul --engine=cpu --dt=f32:f32:f32 --stag=ab --wtag=any --dtag=ab 128x256:256x64"),
    (("gpu:0,convolution,jit,forward_training,src:f32::blocked:acdb::f0"
     " wei:f32::blocked:Acdb16a::f0 bia:f32::blocked:a::f0 dst:f32::blocked:acdb::f0,,"
     "alg:convolution_direct,mb2_ic3oc16_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1"),
     ("--conv --engine=gpu:0 --dir=FWD_B --dt=f32:f32:f32 --stag=acdb --wtag=Acdb16a --dtag=acdb"
     " --alg=direct mb2_ic3oc16_ih8oh8kh3sh1dh0ph1_iw8ow8kw3sw1dw0pw1")),
    (("cpu,convolution,jit,backward_weights,src:f32::blocked:acdb::f0"
     " diff_wei:f32::blocked:Acdb16a::f0 bia:undef::undef::: diff_dst:f32::blocked:acdb::f0,,"
     "alg:convolution_winograd,mb2_ic3oc16_ih8oh8kh3sh1dh0ph1"),
     ("--conv --engine=cpu --dir=BWD_W --dt=f32:f32:f32 --stag=acdb --wtag=Acdb16a --dtag=acdb"
     " --alg=wino mb2_ic3oc16_ih8oh8kh3sh1dh0ph1")),
    ("cpu,reorder,jit:uni,undef,src:f32::blocked:ab::f0 dst:bf16:p:blocked:BA16a::f0,,,8x8",
     "--reorder --engine=cpu --sdt=f32 --ddt=bf16 --stag=ab --dtag=BA16a 8x8"),
    (("cpu,softmax,jit,forward_inference,src:f32::blocked:ab::f0 dst:u8::blocked:ab::f0,,"
     "alg:softmax_log axis:1,8x8"),
     ("--softmax --engine=cpu --dir=FWD_I --sdt=f32 --ddt=u8 --stag=ab --dtag=ab"
     " --alg=LOGSOFTMAX --axis=1 8x8")),
    (("cpu,pooling_v2,jit,forward_inference,src_f32::blocked:abcd:f0 dst_f32::blocked:abcd:f0,,"
     "alg:pooling_avg_exclude_padding,mb2ic8_ih32oh16kh2sh2dh0ph0"),
     ("--pool --engine=cpu --dir=FWD_I --dt=f32 --tag=abcd --alg=avg_exclude_padding"
     " mb2ic8_ih32oh16kh2sh2dh0ph0")),
    (("cpu,eltwise,jit,forward_training,data_f32::blocked:ab:f0 diff_undef::undef::f0,,"
     "alg:eltwise_clip alpha:0 beta:6,128x256"),
     "--eltwise --engine=cpu --dir=FWD_D --dt=f32 --tag=ab --alg=clip --alpha=0 --beta=6 128x256"),
    (("cpu,binary,jit,undef,src:f32::blocked:ab::f0 src:bf16::blocked:ba::f0"
     " dst:f32::blocked:ab::f0,,alg:binary_add,8x8:8x1"),
     "--binary --engine=cpu --sdt=f32:bf16 --ddt=f32 --stag=ab:ba --dtag=ab --alg=add 8x8:8x1"),
    (("cpu,concat,simple:any,undef,src:f32::blocked:ab::f0 src:f32::blocked:ba::f0"
     " dst:f32::blocked:ab::f0,,axis:1,8x8:8x1"),
     "--concat --engine=cpu --sdt=f32 --ddt=f32 --stag=ab:ba --dtag=ab --axis=1 8x8:8x1"),
    (("cpu,batch_normalization,bnorm,forward_inference,data:f32::blocked:abcd::f0,,flags:GCH,"
     "mb4ic3ih64iw64"), "--bnorm --engine=cpu --dir=FWD_I --dt=f32 --tag=abcd --flags=GCH mb4ic3ih64iw64"),
    (("cpu,layer_normalization,jit,forward_inference,src:f32::blocked:abc::f0"
     " dst:bf16::blocked:abc::f0 stats:f32::blocked:ab::f0,,flags:CH,2x8x16"),
     "--lnorm --engine=cpu --dir=FWD_I --dt=f32:bf16 --tag=abc:abc --stat_tag=ab --flags=CH 2x8x16"),
    (("cpu,rnn,brgemm,forward_inference,src_layer:f32::blocked:abc::f0"
     " wei_layer:f32:a:blocked:abdEc32e::f0 dst_layer:f32::blocked:abc::f0,,"
     "alg:vanilla_lstm direction:bidirectional_concat activation:undef flags:,l1t10mb4sic64slc32"),
     ("--rnn --engine=cpu --prop=FWD_I --cfg=f32 --tag=abc:any:abc --alg=VANILLA_LSTM"
     " --direction=concat l1t10mb4sic64slc32")),
    (("cpu,reduction,jit,undef,src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,"
     "alg:reduction_sum p:0 eps:0,8x8:8x1"),
     ("--reduction --engine=cpu --sdt=f32 --ddt=f32 --stag=ab --dtag=ab --alg=sum --eps=0 --p=0 8x8:8x1")),
    (("cpu,resampling,jit,forward_inference,src:f32::blocked:abcd::f0 dst:f32::blocked:abcd::f0,,"
     "alg:resampling_linear,mb1ic3_ih8oh16_iw8ow16"),
     ("--resampling --engine=cpu --dir=FWD_I --sdt=f32 --ddt=f32 --tag=abcd --alg=linear"
     " mb1ic3_ih8oh16_iw8ow16")),
]  # fmt: skip


LAYOUTS = "--allow-enum-tags-only=0"


def made(fields: str) -> Command:
    record = load("mlbackends.tracing.formats", "onednn").parse(
        f"onednn_verbose,v1,primitive,exec,{fields},0.5"
    )
    assert isinstance(record, Primitive), fields
    return command(record.signature)


@pytest.mark.parametrize(("fields", "text"), CASES, ids=[text.split()[0] for _, text in CASES])
def test_a_line_becomes_the_command_that_repeats_it(fields: str, text: str) -> None:
    driver, engine, told = text.split(" ", 2)
    assert made(fields).text == f"benchdnn {driver} {engine} {LAYOUTS} {told}"


MATMUL = "cpu,matmul,jit,undef,{} dst:f32::blocked:ab::f0,{},,{}"


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        (MATMUL.format(F32, "attr-scales:src0:0:f32+wei:2:f32", "8x8:8x8"), "values of scales"),
        (MATMUL.format(F32, "attr-unheard:1", "8x8:8x8"), "'attr-unheard:1' has no option"),
        ("cpu,eltwise,jit,forward_training,data:f32::blocked:ab:16x1:f0,,alg:eltwise_relu,8x8", "strides"),
        (MATMUL.format(F32.replace("blocked:ba", "sparse:csr"), "", "8x8:8x8"), "sparsity"),
        (MATMUL.format(F32, "attr-scales:wei:5:f32", "8x8:8x8"), "no word for the mask of scales"),
        (MATMUL.format(F32.replace("ba::f0", "ba::f1:s8m3"), "", "8x8:8x8"), "compensation"),
        ("cpu,reorder,jit,undef,src:s8::blocked:ABcd4b16a4b::f8:zpm1 dst:f32::blocked:abcd::f0,,,2x2x3x3",
         "--iflag is oneDNN's verbose_converter's"),
        (("cpu,rnn,jit,backward,src_layer:f32::blocked:abc::f0 dst_layer:f32::blocked:abc::f0,,"
         "alg:vanilla_lstm direction:unidirectional_left2right,l1t1mb4sic8slc8dhc8dic8"),
         "counts as two passes"),
        (f"cpu,gemm_api,,undef,{F32} dst:f32::blocked:ab::f0,,,8x8:8x8", "calls inside"),
    ],
)  # fmt: skip
def test_what_a_command_cannot_tell_is_noted(fields: str, note: str) -> None:
    found = made(fields)
    assert found.text
    assert note in " ".join(found.notes)


def test_strides_and_encodings_stand_for_layouts() -> None:
    strided = F32.replace("ab::f0", "ab:16x1:f0")
    assert "--wtag=ba --dtag=ab --strides=16x1::" in made(MATMUL.format(strided, "", "8x8:8x8")).text
    sparse = F32.replace("blocked:ba", "sparse:csr")
    assert "--stag=ab --dtag=ab --encoding=:csr:" in made(MATMUL.format(sparse, "", "8x8:8x8")).text


def test_a_reorder_of_the_first_versions_is_told() -> None:
    line = "mkldnn_verbose,exec,reorder,jit:uni,undef,in:f32_nchw out:bf16_nChw16c,num:1,2x16x28x28,0.5"
    record = load("mlbackends.tracing.formats", "onednn").parse(line)
    assert isinstance(record, Primitive)
    told = "--sdt=f32 --ddt=bf16 --stag=nchw --dtag=nChw16c 2x16x28x28"
    assert command(record.signature).text.endswith(told)


def test_scales_keep_their_arguments_and_masks() -> None:
    fields = MATMUL.format(F32, "attr-scales:src0:0:f32+wei:2:f32 attr-zero-points:dst:0:s32", "8x8:8x8")
    text = made(fields).text
    assert "--attr-scales=src:common:0.5:f32+wei:per_dim_1:f32" in text
    assert "--attr-zero-points=dst:common:1:s32" in text


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("cpu,dreaming,jit,undef,src:f32::blocked:ab::f0,,,8x8", "no driver for dreaming"),
        (MATMUL.format(F32, "", "*x8:8x8"), "only at run time"),
    ],
)
def test_what_cannot_be_repeated_says_why(fields: str, why: str) -> None:
    found = made(fields)
    assert found.text == ""
    assert why in found.notes[0]


def test_a_line_of_mkldnn_without_types_says_why() -> None:
    line = (
        "mkldnn_verbose,exec,convolution,jit:avx2,forward_inference,fsrc:nChw8c fwei:OIhw8i8o"
        " fbia:x fdst:nChw8c,alg:convolution_direct,mb1_ic8oc8_ih8oh8kh3sh1dh0ph1,0.5"
    )
    record = load("mlbackends.tracing.formats", "onednn").parse(line)
    assert isinstance(record, Primitive)
    assert "element types" in command(record.signature).notes[0]


def test_a_word_that_a_shell_would_obey_is_quoted() -> None:
    found = made(MATMUL.format(F32, "attr-post-ops:$(reboot);x", "8x8:8x8"))
    assert "'--attr-post-ops=$(reboot);x'" in found.text

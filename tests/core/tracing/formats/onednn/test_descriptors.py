"""Descriptors of tensors, and what names of implementations contain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.formats.onednn import isa, slow_path
from mlbackends.tracing.formats.onednn.descriptors import MemoryDescriptor, descriptors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fsrc:nChw8c", MemoryDescriptor("src", layout="nChw8c")),
        ("in:f32_nchw", MemoryDescriptor("in", "f32", layout="nchw")),
        ("src_f32::blocked:aBcd16b:f0",
         MemoryDescriptor("src", "f32", "", "blocked", "aBcd16b", "", "f0")),
        ("diff_dst_f8_e4m3:a:blocked:ab::f0",
         MemoryDescriptor("diff_dst", "f8_e4m3", "a", "blocked", "ab", "", "f0")),
        ("src:f32:ap:blocked:acdb::f0",
         MemoryDescriptor("src", "f32", "ap", "blocked", "acdb", "", "f0")),
        ("wei:s8::blocked:BA16a64b4a::f1:s8m2",
         MemoryDescriptor("wei", "s8", "", "blocked", "BA16a64b4a", "", "f1:s8m2")),
        ("wei:f32::blocked:ab:256x1:f0",
         MemoryDescriptor("wei", "f32", "", "blocked", "ab", "256x1", "f0")),
        ("in0_f32:1:strided:variable:1x8:8s1",
         MemoryDescriptor("in0", "f32", "variable", "strided", strides="8s1", shape="1x8")),
    ],
    ids=["0.x", "0.x reorder", "1.0", "f8", "3.6", "8 bits", "strides", "graph"],
)  # fmt: skip
def test_each_style_is_taken_apart(text: str, expected: MemoryDescriptor) -> None:
    assert descriptors(text) == (expected,)
    assert expected.present


@pytest.mark.parametrize("text", ["bia:undef::undef:::", "bia_undef::undef::f0", "fbia:undef"])
def test_a_tensor_that_is_not_there(text: str) -> None:
    assert not descriptors(text)[0].present


@given(st.text(alphabet="abf32_:x0s8 ", max_size=30))
def test_nothing_raises(text: str) -> None:
    descriptors(text)


@pytest.mark.parametrize(
    ("implementation", "expected"),
    [
        ("brg_matmul:avx512_core_bf16", "avx512_core_bf16"),
        ("conv:any+jit:avx2", "avx2"),
        ("brg:sve_512", "sve_512"),
        ("brg_matmul:avx10_1_512_amx", "avx10_1_512_amx"),
        ("x64:gemm:jit", ""),
        ("jit:uni", ""),
        ("", ""),
    ],
)
def test_the_instruction_set_is_a_word_of_the_name(implementation: str, expected: str) -> None:
    assert isa(implementation) == expected


@pytest.mark.parametrize(
    ("primitive", "implementation", "expected"),
    [
        ("matmul", "ref:any", "ref"),
        ("convolution", "ocl:ref:any", "ref"),
        ("convolution", "gemm:ref", "ref"),
        ("convolution", "jit_uni_ncsp:conv+ref:any", "ref inside"),
        ("pooling", "simple_nchw:any", "simple"),
        ("concat", "simple:any", ""),
        ("concat", "ref:any", "ref"),
        ("convolution", "prefetch:avx2", ""),
        ("batch_normalization", "ncsp_bnorm:any", ""),
    ],
)
def test_slow_paths_are_told_by_words_not_by_letters(
    primitive: str, implementation: str, expected: str
) -> None:
    assert slow_path(primitive, implementation) == expected

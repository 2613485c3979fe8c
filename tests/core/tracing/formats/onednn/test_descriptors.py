"""Memory descriptors of all versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

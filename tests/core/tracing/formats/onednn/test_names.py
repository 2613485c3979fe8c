"""What names of implementations give away."""

from __future__ import annotations

import pytest

from mlbackends.tracing.formats.onednn import isa, slow_path


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

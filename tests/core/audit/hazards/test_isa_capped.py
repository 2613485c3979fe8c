"""What variables that cap instruction sets take away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.audit.hazards._machine import lost, lost_to_numpy

SAPPHIRE_RAPIDS = frozenset(
    ("avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile")
)
HASWELL = frozenset(("avx", "avx2"))


@pytest.mark.parametrize(
    ("name", "value", "features", "vendor", "gone"),
    [
        ("ONEDNN_MAX_CPU_ISA", "avx512_core_fp16", SAPPHIRE_RAPIDS, "Intel", ("amx_tile",)),
        ("ONEDNN_MAX_CPU_ISA", "AVX2", HASWELL, "Intel", ()),
        ("DNNL_MAX_CPU_ISA", "SSE41", HASWELL, "AMD", ("avx", "avx2")),
        ("ONEDNN_MAX_CPU_ISA", "ALL", SAPPHIRE_RAPIDS, "Intel", ()),
        ("MKL_ENABLE_INSTRUCTIONS", "AVX", HASWELL, "Intel", ("avx2",)),
        ("MKL_ENABLE_INSTRUCTIONS", "AVX", HASWELL, "AMD", ()),
        ("OPENBLAS_CORETYPE", "Haswell", SAPPHIRE_RAPIDS, "Intel", ("avx512f",)),
        ("OPENBLAS_CORETYPE", "ZEN", HASWELL, "AMD", ()),
        ("OPENBLAS_CORETYPE", "Zen", SAPPHIRE_RAPIDS, "AMD", ("avx512f",)),
        ("OPENBLAS_CORETYPE", "Generic", HASWELL, "AMD", ()),
        ("OPENBLAS_CORETYPE", "Excavator", HASWELL, "AMD", ("avx2",)),
        ("OMP_NUM_THREADS", "AVX2", SAPPHIRE_RAPIDS, "Intel", ()),
    ],
)
def test_what_a_value_takes_away_is_what_the_processor_has_above_it(
    name: str, value: str, features: frozenset[str], vendor: str, gone: tuple[str, ...]
) -> None:
    assert lost(name, value, features, vendor) == gone


DISABLE, ENABLE = "NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"


@pytest.mark.parametrize(
    ("name", "value", "version", "features", "gone"),
    [
        (DISABLE, "AVX2,AVX512F", "2.3.5", HASWELL, ("avx2",)),
        (DISABLE, "AVX2 AVX512F", "2.4.0", SAPPHIRE_RAPIDS, ()),  # no names of 2.4's
        (DISABLE, "X86_V3, X86_V4", "2.4.6", SAPPHIRE_RAPIDS, ("avx2", "avx512f")),
        (DISABLE, "X86_V4", "2.4.6", HASWELL, ()),
        (DISABLE, "x86_v3", "2.4.6", HASWELL, ()),
        (DISABLE, "X86_V3", "2.3.5", HASWELL, ()),
        (DISABLE, "AVX512_SPR", "1.26.4", SAPPHIRE_RAPIDS, ("avx512_fp16",)),
        (DISABLE, "VSX NEON", "2.3.5", HASWELL, ()),
        (DISABLE, "ASIMDHP", "2.4.0", frozenset(("asimdhp", "sve")), ("asimdhp",)),
        (DISABLE, "X86_V3", "", HASWELL, ()),
        (ENABLE, "X86_V3", "2.4.6", SAPPHIRE_RAPIDS, ("avx512f", "avx512_fp16")),
        (ENABLE, "X86_V3 X86_V4 AVX512_SPR", "2.4.6", SAPPHIRE_RAPIDS, ()),
        (ENABLE, "AVX2", "2.4.6", SAPPHIRE_RAPIDS, ()),
    ],
)
def test_numpy_loses_what_the_names_of_its_own_release_take_away(
    name: str, value: str, version: str, features: frozenset[str], gone: tuple[str, ...]
) -> None:
    assert lost_to_numpy(name, value, features, version) == gone


@given(
    st.sampled_from(["ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS"]),
    st.text(),
    st.frozensets(st.sampled_from(sorted(SAPPHIRE_RAPIDS))),
)
def test_only_what_is_there_can_be_lost(name: str, value: str, features: frozenset[str]) -> None:
    assert set(lost(name, value, features, "Intel")) <= features

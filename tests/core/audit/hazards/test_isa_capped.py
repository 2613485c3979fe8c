"""What variables that cap instruction sets take away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.audit.hazards.isa_capped import lost

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
        ("NPY_DISABLE_CPU_FEATURES", "AVX2,AVX512F", HASWELL, "Intel", ("avx2",)),
        ("NPY_DISABLE_CPU_FEATURES", "VSX NEON", HASWELL, "Intel", ()),
        ("OMP_NUM_THREADS", "AVX2", SAPPHIRE_RAPIDS, "Intel", ()),
    ],
)
def test_what_a_value_takes_away_is_what_the_processor_has_above_it(
    name: str, value: str, features: frozenset[str], vendor: str, gone: tuple[str, ...]
) -> None:
    assert lost(name, value, features, vendor) == gone


@given(
    st.sampled_from(["ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"]),
    st.text(),
    st.frozensets(st.sampled_from(sorted(SAPPHIRE_RAPIDS))),
)
def test_only_what_is_there_can_be_lost(name: str, value: str, features: frozenset[str]) -> None:
    assert set(lost(name, value, features, "Intel")) <= features

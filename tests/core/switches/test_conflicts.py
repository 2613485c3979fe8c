"""Switches that cannot hold together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput
from mlbackends.switches.cells import lost, refuse_contradictions
from mlbackends.switches.table import SWITCHES

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

PRECISION: dict[str, SearchStrategy[object]] = {
    name: st.sampled_from(getattr(flag.kind, "words", (True, False)))
    for name, flag in SWITCHES.items()
    if name.endswith(("fp32_precision", "allow_tf32", "float32_matmul_precision"))
}


@pytest.mark.parametrize("name", PRECISION)
@given(data=st.data())
def test_no_switch_contradicts_itself(name: str, data: st.DataObject) -> None:
    assert lost({name: data.draw(PRECISION[name])}) == ""


@given(st.fixed_dictionaries({}, optional=PRECISION))
def test_a_refusal_names_switches_that_were_given(values: dict[str, object]) -> None:
    if not lost(values):
        refuse_contradictions(values)
        return
    with pytest.raises(BadInput) as caught:
        refuse_contradictions(values)
    assert any(name in str(caught.value) for name in values)
    assert len(values) > 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"cuda.matmul.allow_tf32": True}, {"cuda.matmul.fp32_precision": "ieee"}),
        ({"cuda.matmul.allow_tf32": True}, {"float32_matmul_precision": "highest"}),
        ({"float32_matmul_precision": "medium"}, {"mkldnn.matmul.fp32_precision": "tf32"}),
        ({"cudnn.allow_tf32": False}, {"fp32_precision": "tf32"}),
        ({"cudnn.allow_tf32": True}, {"cudnn.conv.fp32_precision": "ieee"}),
        ({"opt_einsum.enabled": False}, {"opt_einsum.strategy": "auto"}),
    ],
)
def test_these_cannot_hold_together(one: dict[str, object], other: dict[str, object]) -> None:
    assert lost({**one, **other})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"cuda.matmul.allow_tf32": True}, {"cuda.matmul.fp32_precision": "tf32"}),
        ({"cuda.matmul.allow_tf32": False}, {"fp32_precision": "tf32"}),
        ({"cudnn.allow_tf32": False}, {"cudnn.conv.fp32_precision": "ieee"}),
        ({"fp32_precision": "ieee"}, {"mkldnn.conv.fp32_precision": "bf16"}),
        ({"cudnn.enabled": False}, {"cudnn.benchmark": True}),
    ],
)
def test_these_hold_together(one: dict[str, object], other: dict[str, object]) -> None:
    assert not lost({**one, **other})

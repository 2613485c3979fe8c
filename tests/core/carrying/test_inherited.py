"""One run inside another."""

from __future__ import annotations

import pytest

from mlbackends.carrying.environment import environment_with
from mlbackends.carrying.inherited import merged
from mlbackends.carrying.planning import plan
from mlbackends.model.errors import BadInput


def around(**values: object) -> dict[str, str]:
    return environment_with(
        plan({name.replace("__", "."): each for name, each in values.items()}), {}
    )


def test_both_are_carried() -> None:
    outer = around(cudnn__benchmark=True)
    assert merged({"cudnn.enabled": False}, outer) == {
        "cudnn.enabled": False,
        "cudnn.benchmark": True,
    }


def test_the_inner_one_goes_before() -> None:
    assert merged({"cudnn.benchmark": False}, around(cudnn__benchmark=True)) == {
        "cudnn.benchmark": False
    }


def test_what_contradicts_the_inner_one_is_left_out() -> None:
    outer = around(cuda__matmul__allow_tf32=True, cudnn__benchmark=True)
    assert merged({"cuda.matmul.fp32_precision": "ieee"}, outer) == {
        "cuda.matmul.fp32_precision": "ieee",
        "cudnn.benchmark": True,
    }


def test_none_takes_an_outer_switch_away() -> None:
    assert merged({"cudnn.benchmark_limit": None}, around(cudnn__benchmark_limit=4)) == {
        "cudnn.benchmark_limit": None
    }


def test_an_order_and_a_pair_come_back_as_they_were() -> None:
    values = {
        "cuda.sdp_priority_order": (4, 3, 2, 1, 0),
        "cuda.matmul.allow_bf16_reduced_precision_reduction": (False, False),
    }
    assert merged({}, environment_with(plan(values), {})) == values


@pytest.mark.parametrize(
    "text",
    ["x", "{}", "[1]", '[{"name": "cudnn.nosuch", "value": 1}]', "[" * 9999, "\udcff",
     '[{"name": "cudnn.benchmark", "value": "maybe"}]'],
)  # fmt: skip
def test_a_variable_that_holds_something_else_is_an_error(text: str) -> None:
    with pytest.raises(BadInput, match="MLBACKENDS_CARRIED"):
        merged({}, {"MLBACKENDS_CARRIED": text})

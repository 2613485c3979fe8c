"""Each constraint passes what it should, and refuses with what was seen and what is needed."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.base.reasons import shared_codes
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa import constraints as c
from mlbackends.sdpa.constraints import Constraint, unmet


def spec(*shape: int, **more: Any) -> TensorSpec:
    return TensorSpec(shape, **{"dtype": "float16", **more})


Q = spec(2, 4, 16, 64)
EMPTY = spec(2, 4, 0, 64)


def problem(**changes: Any) -> AttentionProblem:
    return AttentionProblem(**{"query": Q, "key": Q, "value": Q, **changes})


def sm(capability: str) -> Device:
    return Device("cuda", 0, capability=capability)


def all_three(spec: TensorSpec) -> dict[str, Any]:
    return {"query": spec, "key": spec, "value": spec}


ROWS_APART = spec(2, 4, 16, 64, strides=(4096, 1024, 1, 16))
ONE_WIDE = spec(2, 4, 16, 1, strides=(64, 16, 1, 16))
PACKED = all_three(spec(1, 4, 16, 64))
LOWER_RIGHT = {"is_causal": True, "lower_right": True}
PAGED_OF_9 = {
    "key": spec(9, 4, 16, 64), "value": spec(9, 4, 16, 64),
    "page_table": spec(2, 1, dtype="int32"), "key_lengths": (3, 16),
}  # fmt: skip
PAGED = {"page_table": spec(2, 1, dtype="int32"), "key_lengths": (3, 16)}
CASES: list[tuple[Constraint, dict[str, Any], dict[str, Any], str]] = [
    (c.on_device("cuda"), {"device": sm("9.0")}, {}, "needs cuda tensors; these are on cpu"),
    (c.on_device("cpu", "cuda"), {}, {"device": Device("xpu", 0)}, "needs cpu or cuda tensors"),
    (c.capability_between((8, 0), (12, 1)), {"device": sm("12.1")}, {"device": sm("12.2")},
     "the device is sm122; needs sm80 to sm121"),
    (c.capability_between((8, 0), (12, 1)), {"device": sm("8.0")}, {"device": sm("7.5")}, "sm75"),
    (c.capability_between((8, 0), (12, 1)), {}, {"device": sm("")}, "is unknown; needs sm80"),
    (c.dtype_in("float16", "float32"), {}, all_three(spec(1, 1, 2, 2, dtype="int8")),
     "the dtype is int8; supported: float16, float32"),
    (c.rank_is(4), {}, all_three(spec(4, 16, 64)), "have 3, 3 and 3 dimensions; 4 are needed"),
    (c.equal_batch(), PAGED_OF_9, {"key": spec(1, 4, 16, 64)}, "batch sizes 2, 1, 2; they must be equal"),
    (c.equal_heads(), {}, {"value": spec(2, 1, 16, 64)}, "have 4, 4 and 1 heads; they must be equal"),
    (c.grouped_heads(), {"key": spec(2, 2, 16, 64), "value": spec(2, 2, 16, 64), "enable_gqa": True},
     {"key": spec(2, 1, 16, 64), "value": spec(2, 1, 16, 64)}, "unless enable_gqa is True"),
    (c.grouped_heads(), {}, {"key": spec(2, 1, 16, 64), "value": spec(2, 2, 16, 64), "enable_gqa": True},
     "key and value must have the same number"),
    (c.grouped_heads(value_may_differ=True), {"key": spec(2, 1, 16, 64), "value": spec(2, 2, 16, 64),
     "enable_gqa": True}, {"key": spec(2, 1, 16, 64)}, "4, 1 and 4 heads"),
    (c.same_head_dim(), {}, {"value": spec(2, 4, 16, 32)}, "head_dim is 64 and value_dim is 32"),
    (c.head_dim_at_most(64), {}, {"value": spec(2, 4, 16, 65)}, "head_dim is 65; the limit is 64"),
    (c.head_dim_multiple_of(8), {}, {"value": spec(2, 4, 16, 12)},
     "head_dim is 12; it must be a multiple of 8"),
    (c.non_empty(), {}, {"query": EMPTY}, "lengths of query and key are 0 and 16"),
    (c.square_causal(), {"is_causal": True}, {"query": spec(2, 4, 8, 64), "is_causal": True},
     "is_causal with lengths 8 and 16; they must be equal"),
    (c.square_causal(), {"query": spec(2, 4, 8, 64)}, {"query": spec(2, 4, 1, 64), "is_causal": True},
     "1 and 16"),
    (c.last_dim_contiguous(), {}, {"key": ROWS_APART, "value": ROWS_APART},
     "must be 1; they are key 16, value 16"),
    (c.last_dim_contiguous(), {}, all_three(ONE_WIDE), "they are query 16"),
    (c.last_dim_contiguous(singleton_exempt=True), all_three(ONE_WIDE), {"query": ROWS_APART},
     "they are query 16"),
    (c.last_dim_contiguous(mask_too=True), {"mask": spec(16, 16)}, {"mask": spec(16, 16, strides=(1, 16))},
     "mask 16"),
    (c.last_dim_contiguous(), {"mask": spec(16, 16, strides=(1, 16))}, {"query": ROWS_APART}, "query 16"),
    (c.no_mask(), {"is_causal": True}, {"mask": spec(16, 16)},
     r"masks are not supported; there is one of shape \[16, 16\]"),
    (c.mask_fixed(), {"mask": spec(16, 16)}, {"mask": spec(16, 16, requires_grad=True)},
     "gradients of masks are not supported"),
    (c.mask_ranks(2, 4), {"mask": spec(16, 16)}, {"mask": spec(4, 16, 16)},
     "has 3 dimensions; 2 or 4 are supported"),
    (c.no_dropout(), {}, {"dropout": 0.5}, "dropout is not supported; it is 0.5"),
    (c.no_gradient(), {}, {"key": spec(2, 4, 16, 64, requires_grad=True)},
     "gradients are not supported; key requires one"),
    (c.not_nested(), {}, all_three(spec(2, 4, 0, 64, nested=True)), "nested tensors are not supported"),
    (c.no_lower_right(), {"is_causal": True, "lower_right": True}, {"query": spec(2, 4, 8, 64),
     "is_causal": True, "lower_right": True}, "bottom-right alignment of the causal mask"),
    (c.no_float64_inside(), {"inner_dtype": "float32"}, {"inner_dtype": "float64"},
     "float64 intermediates are not supported"),
    (c.no_logsumexp(), {}, {"logsumexp": True}, "the logsumexp of the rows is requested"),
    (c.no_lower_right(), {"window": (3, 3), "lower_right": True}, {"query": spec(2, 4, 8, 64), "window": (3,
     3), "lower_right": True}, "bottom-right alignment of the window is not supported"),
    (c.no_lower_right(), {**PACKED, "query_lengths": (8, 8), "key_lengths": (8, 8), **LOWER_RIGHT},
     {**PACKED, "query_lengths": (4, 12), "key_lengths": (8, 8), **LOWER_RIGHT},
     "bottom-right alignment of the causal mask"),
    (c.lower_right_causal(), {"query": spec(2, 4, 8, 64), **LOWER_RIGHT}, {"query": spec(2, 4, 8, 64),
     "is_causal": True}, "top-left alignment of the causal mask"),
    (c.no_bool_mask(), {"mask": spec(16, 16)}, {"mask": spec(16, 16, dtype="bool")},
     "boolean masks are not supported"),
    (c.no_window(), {"is_causal": True}, {"window": (7, -1)}, "see 7 keys to the left and all to"),
    (c.no_softcap(), {}, {"softcap": 30.0}, "softcap is not supported; it is 30.0"),
    (c.no_alibi(), {}, {"alibi_slopes": spec(4)}, "ALiBi slopes are not supported"),
    (c.no_sinks(), {}, {"sinks": spec(4)}, "sinks are not supported"),
    (c.no_variable_lengths(), {}, {**PACKED, "query_lengths": (8, 8), "key_lengths": (8, 8)},
     "packed sequences are not supported; there are 2"),
    (c.no_pages(), {}, PAGED, "key has pages of 16"),
    (c.pages_forward_only(), PAGED, {**PAGED, "query": spec(2, 4, 16, 64, requires_grad=True)},
     "gradients are not supported with paged keys"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("constraint", "passing", "failing", "said"),
    CASES,
    ids=[f"{n}-{case[0].code}" for n, case in enumerate(CASES)],
)
def test_a_constraint_passes_and_refuses(
    constraint: Constraint, passing: dict[str, Any], failing: dict[str, Any], said: str
) -> None:
    import re

    assert constraint.reason(problem(**passing)) is None
    reason = constraint.reason(problem(**failing))
    assert reason is not None
    assert re.search(said, reason.message)
    assert reason.code in shared_codes()
    assert constraint.sentence


def test_a_code_stays_what_scripts_know_it_by() -> None:
    assert {case[0].code for case in CASES} == {
        *("wrong-device", "wrong-capability", "wrong-dtype", "wrong-rank"),
        *("batch-differs", "heads-differ", "head-dim-differs", "head-dim-too-large"),
        *("head-dim-unaligned", "empty-sequence", "causal-not-square", "causal-lower-right"),
        "causal-upper-left",
        *("rows-not-contiguous", "mask", "mask-gradient", "mask-rank", "dropout", "gradient"),
        *("nested", "inner-dtype", "logsumexp"),
        *("window", "softcap", "sinks", "alibi", "variable-lengths", "pages"),
    }


def test_every_constraint_is_tried_above() -> None:
    public = {name: thing for name, thing in vars(c).items() if not name.startswith("_")}
    fixed = {thing() for thing in public.values() if getattr(thing, "__name__", "") == "<lambda>"}
    with_arguments = {
        name
        for name, thing in public.items()
        if getattr(thing, "__annotations__", {}).get("return") is Constraint
    }

    assert fixed <= {case[0] for case in CASES}
    assert with_arguments <= {case[0].test.__qualname__.partition(".")[0] for case in CASES}


def test_all_reasons_are_told_and_not_the_first_alone() -> None:
    told = unmet(
        (c.on_device("cuda"), c.no_mask(), c.no_dropout(), c.rank_is(4)),
        problem(mask=spec(16, 16), dropout=0.5),
    )

    assert [reason.code for reason in told] == ["wrong-device", "mask", "dropout"]

"""A problem that no backend could answer cannot be made, and one that can be says what it is."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import InvalidProblem, MlBackendsError, NoBackend
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import (
    AttentionProblem,
    Decision,
    TensorSpec,
    Verdict,
    broadcast,
    contiguous_strides,
)
from mlbackends.model.records import Device

SPEC = TensorSpec((2, 8, 16, 64), "float32")


def problem(**changes: Any) -> AttentionProblem:
    return AttentionProblem(**{"query": SPEC, "key": SPEC, "value": SPEC, **changes})


def spec(*shape: int, dtype: str = "float32", **more: Any) -> TensorSpec:
    return TensorSpec(shape, dtype, **more)


def test_a_problem_says_its_sizes() -> None:
    told = problem(query=spec(2, 8, 5, 64), key=spec(2, 2, 7, 64), value=spec(2, 4, 7, 32), enable_gqa=True)

    assert (told.heads, told.key_heads, told.query_length, told.key_length) == (8, 2, 5, 7)
    assert (told.head_dim, told.value_dim, told.rank, told.dtype) == (64, 32, 4, "float32")
    assert told.output_shape == (2, 8, 5, 32)


PACKED = {"query": spec(1, 8, 9, 64), "key": spec(1, 8, 12, 64), "value": spec(1, 8, 12, 32)}
LENGTHS = {"query_lengths": (2, 0, 7), "key_lengths": (5, 4, 3)}
PAGES = {"key": spec(6, 2, 16, 64), "value": spec(6, 2, 16, 64), "enable_gqa": True}
SPEC_OF_3 = spec(3, 8, 16, 64)
TABLE = spec(2, 3, dtype="int32")


def test_packed_sequences_are_a_problem_of_one_batch() -> None:
    told = problem(**PACKED, **LENGTHS)

    assert told.sequences == ((2, 5), (0, 4), (7, 3))
    assert (told.query_length, told.key_length) == (9, 12)
    assert told.output_shape == (1, 8, 9, 32)


def test_keys_in_pages_are_no_batch() -> None:
    told = problem(**PAGES, page_table=TABLE, key_lengths=(48, 0))

    assert told.sequences == ((16, 48), (16, 0))
    assert (told.key_length, told.key_heads) == (48, 2)
    assert told.output_shape == (2, 8, 16, 64)


def test_packed_queries_may_have_their_keys_in_pages() -> None:
    told = problem(
        **{**PAGES, "query": spec(1, 8, 4, 64)},
        page_table=TABLE,
        query_lengths=(1, 3),
        key_lengths=(40, 16),
    )

    assert told.sequences == ((1, 40), (3, 16))
    assert told.output_shape == (1, 8, 4, 64)


@pytest.mark.parametrize(
    ("changes", "band"),
    [
        ({}, (-1, -1)),
        ({"is_causal": True}, (-1, 0)),
        ({"window": (3, 2)}, (3, 2)),
        ({"window": (3, 2), "is_causal": True}, (3, 0)),
        ({"window": (3, -1), "lower_right": True}, (3, -1)),
    ],
)
def test_a_causal_mask_cuts_the_window(changes: Any, band: tuple[int, int]) -> None:
    assert problem(**changes).band == band


def test_sinks_may_require_the_only_gradient() -> None:
    assert problem(sinks=spec(8, requires_grad=True)).wants_gradient
    assert not problem(sinks=spec(8)).wants_gradient


def test_what_broadcasts_is_a_problem() -> None:
    told = problem(query=spec(5, 64), key=spec(3, 1, 7, 64), value=spec(4, 7, 8))

    assert told.heads == 1
    assert told.output_shape == (3, 4, 5, 8)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"key": spec(2, 8, 16, 64, dtype="float16")}, "query float32, key float16, value float32"),
        ({"query": spec(64)}, "query must be at least 2 dimensional"),
        ({"key": spec(2, 8, 16, 32)}, "same last dimension; it is 64 and 32"),
        ({"value": spec(2, 8, 15, 64)}, "same length; it is 16 and 15"),
        ({"key": spec(3, 8, 16, 64)}, "sizes 2 and 3 do not go together"),
        ({"key": spec(2, 2, 16, 64)}, "sizes 2 and 8 do not go together"),
        ({"key": spec(2, 3, 16, 64), "value": spec(2, 3, 16, 64), "enable_gqa": True}, "key has 3, query 8"),
        ({"key": spec(2, 0, 16, 64), "value": spec(2, 0, 16, 64), "enable_gqa": True}, "key has 0, query 8"),
        ({"query": spec(4, 8), "key": spec(4, 8), "value": spec(4, 8), "enable_gqa": True},
         "needs a dimension of heads"),
        ({"dropout": 1.5}, "between 0 and 1, but got 1.5"),
        ({"dropout": -0.1}, "between 0 and 1"),
        ({"dropout": math.nan}, "between 0 and 1"),
        ({"mask": spec(16, 16, dtype="int64")}, "got int64 and query float32"),
        ({"mask": spec(16, 16, dtype="float64")}, "got float64 and query float32"),
        ({"mask": spec(16)}, "does not extend"),
        ({"mask": spec(16, 17)}, r"shape \[16, 17\] does not extend to the scores \[2, 8, 16, 16\]"),
        ({"mask": spec(3, 8, 16, 16)}, "does not extend"),
        ({"mask": spec(1, 1, 1, 16, 16)}, "does not extend"),
        ({"mask": spec(16, 16), "is_causal": True}, "should not be set when is_causal=True"),
        ({"lower_right": True}, "is_causal is False"),
        ({"window": (-2, 0)}, r"window is \(-2, 0\)"),
        ({"softcap": -1.0}, "must be 0 or greater, but got -1.0"),
        ({"softcap": math.inf}, "but got inf"),
        ({"softcap": math.nan}, "but got nan"),
        ({"sinks": spec(8, dtype="float64")}, "got float64 and float32"),
        ({"sinks": spec(7)}, r"\[8\]; got \[7\]"),
        ({"sinks": spec(1, 8)}, r"\[8\]; got \[1, 8\]"),
        ({"query": spec(2, 8, 16, 64, nested=True), "sinks": spec(8)}, "sinks need plain tensors"),
        ({"query_lengths": (16,)}, "query_lengths is given without key_lengths"),
        ({"key_lengths": (16, 16)}, "key_lengths is given without query_lengths or"),
        ({"page_table": TABLE}, "page_table is given without key_lengths"),
        ({"query": spec(2, 8, 16, 64, nested=True), **LENGTHS}, "already contain their lengths"),
        ({"query": spec(8, 9, 64), **LENGTHS}, "need 4 dimensions"),
        ({**PACKED, **LENGTHS, "key_lengths": (5, -1, 8)}, "a negative length, -1"),
        ({**PACKED, **LENGTHS, "key_lengths": (5, 7)}, "query_lengths has 3 sequences and key_lengths 2"),
        ({**PACKED, **LENGTHS, "query_lengths": (2, 0, 6)}, r"of 8 rows together.* \[1, 8, 8, 64\]"),
        ({**PACKED, **LENGTHS, "key_lengths": (5, 4, 4)}, r"key has .* \[1, 8, 13, 64\]"),
        ({**LENGTHS, "query_lengths": (16, 0, 0)}, r"query has the shape \[2, 8, 16, 64\]"),
        ({**PACKED, **LENGTHS, "mask": spec(9, 12)}, "a mask needs one length for all sequences"),
        ({**PAGES, "page_table": spec(2, 3, dtype="int64"), "key_lengths": (1, 1)}, r"got int64 of \[2, 3\]"),
        ({**PAGES, "page_table": spec(6, dtype="int32"), "key_lengths": (1, 1)}, r"got int32 of \[6\]"),
        ({**PAGES, "value": spec(5, 2, 16, 64), "page_table": TABLE, "key_lengths": (1, 1)},
         "key has 6 pages and value 5"),
        ({**PAGES, "page_table": TABLE, "key_lengths": (1, 1, 1)},
         "page_table has 2 sequences and key_lengths 3"),
        ({**PAGES, "query": SPEC_OF_3, "page_table": TABLE, "key_lengths": (1, 1)},
         "query has a batch of 3 and page_table 2 sequences"),
        ({**PAGES, "page_table": TABLE, "key_lengths": (1, 49)},
         "a sequence has 49 keys; 3 pages of 16 hold fewer"),
        ({**PAGES, "enable_gqa": False, "page_table": TABLE, "key_lengths": (1, 1)}, "2 and 8 do not"),
        ({"inner_dtype": "float16"}, "must be float32, float64 or float32"),
        ({"key": spec(2, 8, 16, 64, device="cuda:0"), "query": spec(2, 8, 16, 64, device="xpu")},
         "one device"),
        ({"query": spec(2, 8, 16, 64, device="cuda:0")}, "is on cuda:0, and the problem's device is cpu"),
    ],
)  # fmt: skip
def test_what_has_no_answer_is_refused_with_what_was_seen(changes: Any, said: str) -> None:
    with pytest.raises(InvalidProblem, match=said):
        problem(**changes)


def test_forgotten_grouping_is_suggested() -> None:
    few = spec(2, 2, 16, 64)
    with pytest.raises(InvalidProblem) as caught:
        problem(key=few, value=few)
    assert "enable_gqa=True" in caught.value.hint

    with pytest.raises(InvalidProblem) as caught:
        problem(key=spec(2, 3, 16, 64), value=spec(2, 3, 16, 64))
    assert not caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (((2, -1), "float32"), r"shape \[2, -1\] has a negative size"),
        (((2, 3), "float33"), "no element type named 'float33'"),
        (((2, 3), ""), "no element type"),
        (((2, 3), "float32", (1,)), r"needs 2 strides; it has \[1\]"),
        (((2, 3), "float32", (), "", False, False, -1), "before the storage"),
    ],
)
def test_a_senseless_tensor_is_refused(arguments: Any, said: str) -> None:
    with pytest.raises(InvalidProblem, match=said):
        TensorSpec(*arguments)


@pytest.mark.parametrize("name", ["bf16", "BF16", "torch.bfloat16", "bfloat16"])
def test_an_element_type_is_kept_by_torchs_name(name: str) -> None:
    assert TensorSpec((1, 1), name).dtype == "bfloat16"


def test_a_mistyped_element_type_is_corrected() -> None:
    with pytest.raises(InvalidProblem) as caught:
        TensorSpec((1, 1), "bflaot16")
    assert caught.value.hint == "did you mean 'bfloat16'?"


def test_another_type_of_as_many_bits_is_not_suggested() -> None:
    with pytest.raises(InvalidProblem) as caught:
        TensorSpec((1, 1), "tf32")
    assert caught.value.hint.startswith("known: float32, bfloat16")


@given(st.lists(st.integers(0, 5), max_size=5).map(tuple))
def test_left_out_strides_are_those_of_rows_side_by_side(shape: tuple[int, ...]) -> None:
    strides = TensorSpec(shape, "float32").strides

    assert strides == contiguous_strides(shape)
    if all(shape):
        last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        assert last == math.prod(shape) - 1


@given(*[st.lists(st.integers(0, 3), max_size=4).map(tuple)] * 2)
def test_broadcasting_is_numpys(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    import numpy as np

    try:
        wanted = np.broadcast_shapes(left, right)
    except ValueError:
        with pytest.raises(InvalidProblem):
            broadcast(left, right)
    else:
        assert broadcast(left, right) == wanted


@pytest.mark.parametrize(
    ("device", "platform", "capability"),
    [
        (Device("cpu", 0), "cpu", None),
        (Device("cuda", 0, capability="9.0"), "cuda", (9, 0)),
        (Device("cuda", 0, capability="12.1"), "cuda", (12, 1)),
        (Device("mig", 0, capability="8.0"), "cuda", (8, 0)),
        (Device("cuda", 0), "cuda", None),
        (Device("cuda", 0, capability="nonsense"), "cuda", None),
        (Device("rocm", 0, capability="gfx942"), "rocm", None),
    ],
)
def test_a_device_says_what_it_is(device: Device, platform: str, capability: tuple[int, int] | None) -> None:
    told = problem(device=device)

    assert (told.platform, told.capability) == (platform, capability)


def test_a_decision_is_read_back_as_it_was_written() -> None:
    verdicts = (
        Verdict("flash", "FLASH_ATTENTION", (Reason("mask", "there is a mask"),)),
        Verdict("math", "MATH"),
    )
    wide = problem(scale=0.5, seed=3, window=(4, 0), softcap=30.0, sinks=spec(8))
    decision = Decision(wide, "math", verdicts)

    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision
    assert [verdict.usable for verdict in verdicts] == [False, True]
    assert [reason.code for reason in decision.reasons] == ["mask"]


def test_the_errors_are_caught_by_torch_shaped_code() -> None:
    with pytest.raises(ValueError, match="negative"):
        TensorSpec((-1,), "float32")
    refused = NoBackend("nobody", (Reason("mask", "there is a mask"),), "drop it")
    assert {RuntimeError, MlBackendsError} <= set(type(refused).__mro__)
    assert (refused.exit_code, refused.hint, refused.reasons[0].code) == (1, "drop it", "mask")


def test_a_table_of_64_bits_is_told_how_to_become_one_of_32() -> None:
    with pytest.raises(InvalidProblem) as caught:
        problem(**PAGES, page_table=spec(2, 3, dtype="int64"), key_lengths=(1, 1))
    assert "int32" in caught.value.hint

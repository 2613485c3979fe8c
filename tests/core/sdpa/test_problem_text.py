"""The words of a problem: what they stand for, what they refuse, and that a problem writes itself down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput, InvalidProblem, MlBackendsError, UnknownName
from mlbackends.model.records import Device
from mlbackends.sdpa.named_devices import NAMES
from mlbackends.sdpa.problem_text import Wording, parse, wordings

CPU = Device("cpu", 0)
SIZES = st.integers(0, 64)


@st.composite
def wordings_that_hold(draw: st.DrawFn) -> Wording:
    heads, groups = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3]))
    length, kv_len = draw(SIZES), draw(st.none() | SIZES)
    columns = length if kv_len is None else kv_len
    broadcast = st.tuples(st.sampled_from([1, length]), st.sampled_from([1, columns]))
    mask = draw(st.sampled_from(["none", "causal", "lower-right", "bool", "float", "bool:", "float:"]))
    window = draw(st.sampled_from([None, (-1, 0), (0, -1), (5, 4)]))
    if mask.endswith(":"):
        mask += ",".join(map(str, draw(broadcast)))
    return Wording(
        shape=(draw(st.integers(1, 3)), heads * groups, length, draw(SIZES)),
        kv_len=kv_len,
        kv_heads=draw(st.sampled_from([None, heads, 1])) if groups > 1 else None,
        value_dim=draw(st.none() | SIZES),
        dtype=draw(st.sampled_from(["float32", "bfloat16", "float16", "float64"])),
        mask=mask,
        dropout=draw(st.sampled_from([0.0, 0.1, 1.0])),
        scale=draw(st.none() | st.floats(-1e30, 1e30)),
        gqa=groups > 1,
        layout=draw(st.sampled_from(["bhsd", "bshd"])),
        backward=draw(st.booleans()),
        mask_gradient=mask.startswith("float") and draw(st.booleans()),
        window=window,
        lower_right=window is not None and mask != "none" and draw(st.booleans()),
        softcap=draw(st.sampled_from([0.0, 30.0, 0.1])),
        sinks=draw(st.booleans()),
        device=draw(st.sampled_from(NAMES)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )


@given(wordings_that_hold())
def test_a_problem_is_read_as_it_was_written(wording: Wording) -> None:
    assert parse(wording.text) == (wording,)


@st.composite
def sequences(draw: st.DrawFn) -> Wording:
    rows = draw(st.none() | st.lists(SIZES, min_size=1, max_size=3).map(tuple))
    count = len(rows) if rows else draw(st.integers(1, 3))
    page_size = draw(st.none() | st.integers(1, 20)) if rows else draw(st.integers(1, 20))
    keys = draw(st.none() | st.lists(SIZES, min_size=count, max_size=count).map(tuple))
    heads = draw(st.integers(1, 4))
    return Wording(
        shape=(1, heads, sum(rows), 8) if rows else (count, heads, draw(SIZES), 8),
        mask=draw(st.sampled_from(["none", "causal", "lower-right"])),
        sinks=draw(st.booleans()),
        query_lengths=rows,
        key_lengths=keys,
        page_size=page_size,
    )


@given(sequences())
def test_sequences_are_read_as_they_were_written(wording: Wording) -> None:
    assert parse(wording.text) == (wording,)


def test_packed_sequences_have_as_many_keys_as_rows_unless_it_is_said() -> None:
    (same,) = parse("--shape 1,8,21,64 --query-lengths 5,7,9")
    (other,) = parse("--shape 1,8,21,64 --query-lengths 5,7,9 --key-lengths 8,7,0")

    assert same.problem(CPU).sequences == ((5, 5), (7, 7), (9, 9))
    assert other.problem(CPU).sequences == ((5, 8), (7, 7), (9, 0))
    assert other.problem(CPU).key.shape == (1, 8, 15, 64)


def test_pages_are_as_many_as_the_keys_need() -> None:
    (found,) = parse("--shape 3,8,1,64 --kv-heads 2 --gqa --page-size 16 --key-lengths 33,16,0")
    problem = found.problem(CPU)

    assert problem.key.shape == (4, 2, 16, 64)
    assert problem.page_table is not None and problem.page_table.shape == (3, 3)
    assert problem.sequences == ((1, 33), (1, 16), (1, 0))
    (alike,) = parse("--shape 3,8,1,64 --page-size 16 --kv-len 20")
    assert alike.problem(CPU).key_lengths == (20, 20, 20)


def test_a_window_beside_a_causal_mask_to_the_lower_right_is_one_wording() -> None:
    (one,) = parse("--shape 1,2,3,4 --causal --lower-right --window 2,-1")
    (other,) = parse("--shape 1,2,3,4 --mask lower-right --window=2,-1")

    assert one == other
    assert one.problem(CPU).lower_right and one.problem(CPU).window == (2, -1)


def test_several_windows_and_lengths_are_several_problems() -> None:
    words = "--shape 1,2,9,4 --window 2,0 --window 3,0 --query-lengths 4,5 --query-lengths 9"
    assert [(problem.window, problem.query_lengths) for problem in parse(words)] == [
        ((2, 0), (4, 5)), ((2, 0), (9,)), ((3, 0), (4, 5)), ((3, 0), (9,))
    ]  # fmt: skip


TRICKY = [
    "--shape", "1,2,3,4", "--mask", "bool:", "bool:1,,2", "--dtype=x", "--causal=1", "--", "--seed", "9" * 40,
    "--scale", "nan", "inf", "--dropout", "2", "--kv-heads", "٣", "--device", "'", "\n", "#",
]  # fmt: skip


@given(st.text(max_size=60) | st.lists(st.sampled_from(TRICKY)).map(" ".join))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    refused = ""
    try:
        parse(text)
    except MlBackendsError as error:
        refused = str(error)
    assert "\n" not in refused


def test_lists_with_commas_are_a_grid() -> None:
    found = parse("--shape 1,2,8,4 --dtype float32,bfloat16 --kv-len 8,9 --mask causal,bool:8,1,none")

    assert len(found) == 2 * 2 * 3
    assert {problem.mask for problem in found} == {"causal", "bool:8,1", "none"}
    assert {problem.kv_len for problem in found} == {8, 9}


def test_several_shapes_are_several_problems() -> None:
    assert [problem.shape for problem in parse("--shape 1,2,8,4 --shape 3,4")] == [
        (1, 2, 8, 4),
        (3, 4),
    ]


def test_a_bare_shape_is_a_mask_of_numbers() -> None:
    (found,) = parse("--shape 2,1,8,4 --dtype float16 --mask 2,1,1,8")
    mask = found.problem(CPU).mask

    assert mask is not None
    assert (mask.shape, mask.dtype) == ((2, 1, 1, 8), "float16")
    assert found.text.endswith("--mask 2,1,1,8")


def test_heads_inside_are_strides() -> None:
    (found,) = parse("--shape 2,3,5,4 --layout bshd")
    problem = found.problem(CPU)

    assert problem.query.shape == (2, 3, 5, 4)
    assert problem.query.strides == (60, 4, 12, 1)


def test_backward_is_that_query_key_and_value_require_gradients() -> None:
    (found,) = parse("--shape 1,2,8,4 --mask float --backward")
    problem = found.problem(CPU)

    assert problem.query.requires_grad and problem.key.requires_grad and problem.value.requires_grad
    assert problem.mask is not None and not problem.mask.requires_grad


def test_the_gradient_of_a_mask_means_backward_as_well() -> None:
    (found,) = parse("--shape 1,2,8,4 --mask 8,1 --mask-gradient")
    problem = found.problem(CPU)

    assert found.words[-2:] == ("--backward", "--mask-gradient")
    assert problem.query.requires_grad
    assert problem.mask is not None and problem.mask.requires_grad


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("--dtype float32", BadInput, "no problem is given"),
        ("--shape 2,8,1024", BadInput, ""),
        ("--shape 8", BadInput, "has 1 size; it needs L,E or H,L,E or B,H,L,E, or more leading"),
        ("--shape 1,1,1,1,1,1,1,2,3", BadInput, "2 to 8 sizes"),
        ("--shape 1x2x64x16,1x2x32x16", BadInput, "has both ',' and 'x'"),
        ("--shape 1,2,y,4", BadInput, "'y' is not a whole number"),
        ("--shape 1,2,3,4 --dtpe float32", UnknownName, "'dtpe'"),
        ("--shape 1,2,3,4 --dtype float3", UnknownName, "'float3'"),
        ("--shape 1,2,3,4 --device sm9", UnknownName, "'sm9'"),
        ("--shape 1,2,3,4 --causal --mask bool", InvalidProblem, "fold causality into the mask"),
        ("--shape 1,2,3,4 --mask bool:5,4", InvalidProblem, "does not extend"),
        ("--shape 1,8,3,4 --kv-heads 2", InvalidProblem, "batches and heads"),
        ("--shape 1,8,3,4 --kv-heads 3 --gqa", InvalidProblem, "must divide"),
        ("--shape 1,8,3,4 --dropout 1.5", InvalidProblem, "between 0 and 1"),
        ("--shape 1,8,3,4 --scale nan", BadInput, "is not a finite number"),
        ("--shape 3,4 --kv-heads 1", InvalidProblem, "a head dimension"),
        ("--shape 3,4 --layout bshd", InvalidProblem, "a head dimension"),
        ("--shape 1099511627776,1099511627776", InvalidProblem, "any address space"),
        ("--shape 1,2,3,4 --dtype int8 --backward", InvalidProblem, "int8 has no gradients"),
        ("--shape 1,2,3,4 --mask bool --mask-gradient", InvalidProblem, "needs a float mask"),
        ("--shape 1,2,3,4 --mask-gradient", InvalidProblem, "needs a float mask"),
        ("--shape 1,2,3,4 --seed", BadInput, "needs a value"),
        ("--shape 1,2,3,4 --window 2", BadInput, "'2' has 1 side; it needs two"),
        ("--shape 1,2,3,4 --window=-2,0", BadInput, "'-2' is not a whole number"),
        ("--shape 1,2,3,4 --lower-right", InvalidProblem, "is_causal is False"),
        ("--shape 1,2,3,4 --softcap -1", InvalidProblem, "must be 0 or greater"),
        ("--shape 999,99,3,99 --page-size 1099511627776", InvalidProblem, "any address space"),
        ("--shape 1,2,3,4 --page-size 0", InvalidProblem, "must be above zero"),
        ("--shape 1,2,3,4 --key-lengths 3", InvalidProblem, "--key-lengths needs packed sequences"),
        ("--shape 1,2,3,4 --query-lengths 4", InvalidProblem, "query has the shape [1, 2, 3, 4]"),
        ("--shape 2,3,4 --query-lengths 3", InvalidProblem, "need 4 dimensions"),
        ("--shape 1,2,3,4 --query-lengths 3 --mask bool", InvalidProblem, "one length for all"),
        ("--shape 1,2,3,4 --page-size 4 --key-lengths 1,2", InvalidProblem, "a batch of 1"),
        ("--shape 1,2,3,4 --gqa=yes", BadInput, "does not accept a value"),
        ("--shape 1,2,3,4 quick", BadInput, "'quick' is not an option"),
        ("--shape '1,2", BadInput, "cannot be read"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(text: str, kind: type[MlBackendsError], said: str) -> None:
    if not said:
        assert len(parse(text)) == 1  # three sizes: heads, length, width
        return
    with pytest.raises(kind) as caught:
        parse(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("bf16", "bfloat16"), ("FP16", "float16"), ("half", "float16"), ("fp32", "float32"), ("f64", "float64"),
     ("torch.bfloat16", "bfloat16")],
)  # fmt: skip
def test_other_names_of_element_types_are_understood(typed: str, meant: str) -> None:
    (wording,) = parse(f"--shape 1,2,3,4 --dtype {typed}")
    assert wording.dtype == meant


def test_a_product_stands_for_its_device() -> None:
    (wording,) = parse("--shape 1,2,3,4 --device H100")
    assert (wording.device, wording.text) == (
        "h100-sxm",
        "--shape 1,2,3,4 --dtype bfloat16 --device h100-sxm",
    )


def test_sizes_may_be_joined_by_x() -> None:
    joined = parse("--shape 1x2x3X4 --mask bool:1x2×3x3")
    assert joined == parse("--shape 1,2,3,4 --mask bool:1,2,3,3")


def test_grouped_heads_are_advised_in_the_words_that_are_typed() -> None:
    with pytest.raises(InvalidProblem) as caught:
        parse("--shape 1,8,3,4 --kv-heads 2")
    assert caught.value.hint == "for grouped heads, add --gqa"


def test_a_grid_without_end_is_refused() -> None:
    many = ",".join(map(str, range(200)))
    with pytest.raises(BadInput, match="problems"):
        wordings({"shape": ["1,1,4,4"], "kv-len": [many], "seed": [many]})

"""The tree of float32 precisions, and the older switches that are bridges to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.switches.cells import PARENTS, Cells, cells_of, deciding, put, reading, untouched
from mlbackends.switches.table import SWITCHES

CUDA = ("cuda.matmul", "cudnn.conv", "cudnn.rnn")
ONEDNN = ("mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")
OLDER = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32", "float32_matmul_precision")


def after(*steps: tuple[str, Any]) -> Cells:
    cells = untouched()
    for name, value in steps:
        put(cells, SWITCHES[name], value, "set")
    return cells


def read(cells: Cells, name: str) -> object:
    return reading(cells, SWITCHES[name])


def precision(cells: Cells, owner: str) -> object:
    return read(cells, f"{owner}.fp32_precision")


def test_nothing_is_said_but_tf32_for_cudnns_layers() -> None:
    cells = untouched()

    assert [precision(cells, owner) for owner in CUDA] == ["none", "tf32", "tf32"]
    assert {precision(cells, owner) for owner in (*ONEDNN, "mkldnn", "cudnn")} == {"none"}
    assert [read(cells, name) for name in OLDER] == [False, True, "highest"]


@pytest.mark.parametrize("word", ["ieee", "tf32", "bf16"])
def test_the_generic_word_reaches_all_that_can_do_it(word: str) -> None:
    cells = after(("fp32_precision", word))

    assert {precision(cells, owner) for owner in ONEDNN} == {word}
    assert {precision(cells, owner) for owner in CUDA} == {"none" if word == "bf16" else word}


def test_a_nearer_word_counts_and_none_inherits_again() -> None:
    cells = after(
        ("fp32_precision", "ieee"),
        ("mkldnn.fp32_precision", "tf32"),
        ("mkldnn.conv.fp32_precision", "bf16"),
    )
    assert [precision(cells, owner) for owner in ONEDNN] == ["tf32", "bf16", "tf32"]
    assert deciding(cells, "mkldnn.rnn.fp32_precision") == "mkldnn.fp32_precision"
    assert deciding(cells, "cudnn.conv.fp32_precision") == "fp32_precision"

    put(cells, SWITCHES["mkldnn.conv.fp32_precision"], "none", "set")
    put(cells, SWITCHES["mkldnn.fp32_precision"], "none", "set")
    assert precision(cells, "mkldnn.conv") == "ieee"


def test_what_was_set_to_none_is_tf32_no_more() -> None:
    cells = after(("cudnn.conv.fp32_precision", "none"))

    assert [precision(cells, owner) for owner in CUDA] == ["none", "none", "tf32"]


@pytest.mark.parametrize(
    ("step", "cuda", "onednn"),
    [
        (("float32_matmul_precision", "highest"), "ieee", "ieee"),
        (("float32_matmul_precision", "high"), "tf32", "tf32"),
        (("float32_matmul_precision", "medium"), "tf32", "bf16"),
        (("cuda.matmul.allow_tf32", True), "tf32", "none"),
        (("cuda.matmul.allow_tf32", False), "ieee", "none"),
    ],
)
def test_an_older_switch_writes_its_entries(step: tuple[str, Any], cuda: str, onednn: str) -> None:
    cells = after(step)

    assert precision(cells, "cuda.matmul") == cuda
    assert precision(cells, "mkldnn.matmul") == onednn
    assert read(cells, step[0]) == step[1]


def test_cudnns_older_switch_off_says_nothing_rather_than_ieee() -> None:
    cells = after(("cudnn.allow_tf32", False), ("fp32_precision", "ieee"))

    assert [precision(cells, owner) for owner in CUDA] == ["ieee", "ieee", "ieee"]
    assert read(cells, "cudnn.allow_tf32") is False


@pytest.mark.parametrize(
    ("step", "unreadable"),
    [
        (("cuda.matmul.fp32_precision", "tf32"), {"cuda.matmul.allow_tf32", "float32_matmul_precision"}),
        (("cuda.matmul.fp32_precision", "ieee"), set()),
        (("cudnn.conv.fp32_precision", "ieee"), {"cudnn.allow_tf32"}),
        (("mkldnn.matmul.fp32_precision", "bf16"), {"float32_matmul_precision"}),
        (("fp32_precision", "tf32"), {"cuda.matmul.allow_tf32", "float32_matmul_precision"}),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else f"{len(each)} unreadable",
)  # fmt: skip
def test_an_older_switch_refuses_to_tell_what_it_has_no_word_for(
    step: tuple[str, Any], unreadable: set[str]
) -> None:
    cells = after(step)
    refused = set()
    for name in OLDER:
        try:
            read(cells, name)
        except RuntimeError as error:
            assert "mix of the legacy and new APIs" in str(error)  # noqa: PT017  some answer
            refused.add(name)

    assert refused == unreadable


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(sorted(PARENTS)), st.sampled_from(["none", "ieee", "tf32"])),
            st.tuples(st.just("cudnn.allow_tf32"), st.booleans()),
            st.tuples(st.just("float32_matmul_precision"), st.sampled_from(["highest", "high", "medium"])),
        ),
        max_size=6,
    )
)  # fmt: skip
def test_a_word_is_read_back_and_nothing_beside_its_cells_changes(
    steps: list[tuple[str, Any]],
) -> None:
    cells = untouched()
    for name, value in steps:
        before = dict(cells)
        put(cells, SWITCHES[name], value, "set")
        if name in PARENTS and value != "none":
            assert read(cells, name) == value
        assert {cell for cell in cells if cells[cell] != before[cell]} <= set(cells_of(name))
    assert {str(read(cells, entry)) for entry in PARENTS} <= {"none", "ieee", "tf32", "bf16"}


def test_the_second_value_of_a_reduction_is_a_switch_to_read() -> None:
    name = "cuda.matmul.allow_bf16_reduced_precision_reduction"
    cells = after((name, (False, False)))

    assert read(cells, name) is False
    assert read(cells, f"{name}_split_k") is False
    assert cells_of(f"{name}_split_k") == cells_of(name)

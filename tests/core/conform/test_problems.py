"""The problems of `conform`: drawn by a seed, repeated by a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.conform.problems import DTYPES, LAYOUTS, SIZES, VALUES, ConformityProblem, draw, parse

SOME = {"gemm": ["float32", "complex64"], "sum": ["float32"], "log": ["float16"]}


@st.composite
def problems(choose: st.DrawFn) -> ConformityProblem:
    operation = choose(st.sampled_from([*SIZES]))
    return ConformityProblem(
        operation,
        choose(st.sampled_from(DTYPES)),
        {name: choose(st.integers(*limits)) for name, limits in SIZES[operation].items()},
        choose(st.sampled_from(LAYOUTS[:3])),
        choose(st.sampled_from(VALUES)),
        choose(st.integers(0, 1 << 32)),
    )


@given(problems())
def test_its_line_is_read_as_the_same_problem(problem: ConformityProblem) -> None:
    assert parse(problem.line) == problem


@pytest.mark.parametrize(
    "line",
    [
        "gemm float32 m=1 n=1",
        "gemm float32 m=1 n=1 k=x",
        "gemm float32 m=1 n=1 k=-1",
        "gemm float32 m=1 n=1 k=1 z=1",
        "gemm float32 m=1 n=1 k=1 seed=-1",
        "gemm float32 m=100000 n=100000 k=100000",
        "gemm float32 m=1 n=1 k=1 layout=zero-stride",
        "attention float32 batch=1 heads=1 queries=1 keys=1 width=0",
        "convolution float32 batch=1 channels=1 height=2 width=9 features=1 kernel=3 stride=1 padding=0",
    ],
)
def test_a_line_that_is_not_a_problem_is_refused(line: str) -> None:
    with pytest.raises(BadInput):
        parse(line)


@pytest.mark.parametrize("line", ["", "gem float32", "gemm", "gemm float8 m=1", "max float32 layout=x"])
def test_an_unknown_word_is_named(line: str) -> None:
    with pytest.raises(UnknownName):
        parse(line)


def test_a_seed_draws_the_same_problems_for_every_library() -> None:
    first = [*draw(7, SOME, 3, has_layouts=True, edges=True)]
    alone = [*draw(7, {"sum": ["float32"]}, 3, has_layouts=True, edges=True)]

    assert [*draw(7, SOME, 3, has_layouts=True, edges=True)] == first
    assert [one for one in first if one.operation == "sum"] == alone
    assert [*draw(8, SOME, 3, has_layouts=True, edges=True)] != first
    assert all(parse(one.line) == one for one in first)


def test_a_library_with_one_layout_gets_no_other() -> None:
    drawn = [*draw(7, SOME, 9, has_layouts=False, edges=True)]

    assert {one.layout for one in drawn} == {"contiguous"}
    assert {one.layout for one in draw(7, SOME, 9, has_layouts=True, edges=False)} == {*LAYOUTS[:3]}


def test_edges_are_empty_huge_not_a_number_infinite_and_subnormal() -> None:
    edges = [one for one in draw(0, SOME, 2, has_layouts=True, edges=True) if one.is_edge]

    assert {one.values for one in edges} == {"normal", "nan", "infinite", "subnormal"}
    assert {one.line for one in edges} >= {
        "gemm float32 m=7 n=7 k=0 seed=0",
        "sum float32 rows=1 size=2147483656 layout=zero-stride seed=1",
    }
    assert not any(one.is_edge for one in draw(0, SOME, 2, has_layouts=True, edges=False))

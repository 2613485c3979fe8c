"""Tables of a trace fit their page: columns go, then the middles of long words, and no number."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import backends

from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import Group, Listing
from mlbackends_cli.trace.listings import middle_left_out, narrowed

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = "1x8x256x64:1x8x64x256"
LINE = (
    "onednn_verbose,v1,primitive,exec,cpu,matmul,{kernel},undef,src:bf16::blocked:abcd::f0"
    " wei:bf16::blocked:abcd::f0 dst:f32::blocked:abcd::f0,,," + SHAPE + ",{took}\n"
)
COLUMNS = ("tracer", "operation", "shape", "dtype", "before", "after", "ratio", "implementation")


def test_the_middle_of_a_long_word_goes() -> None:
    assert middle_left_out("brg_matmul:avx512_core_bf16", 12) == "brg_ma…_bf16"
    assert middle_left_out("short", 12) == "short"


def test_of_two_names_the_part_that_differs_stays() -> None:
    both = "brg_matmul:avx512_core_bf16 → gemm:jit:avx512_core_bf16"
    assert middle_left_out(both, 25) == "brg_matmul… → gemm:jit:a…"
    assert middle_left_out("brg_matmul:avx512_core → ref:any", 25) == "brg_mat…12_core → ref:any"


@given(st.text(max_size=60), st.text(max_size=60), st.integers(1, 60))
def test_what_is_left_fits_and_what_fits_is_left(before: str, after: str, width: int) -> None:
    for text in (before, f"{before} → {after}"):
        short = middle_left_out(text, width)
        assert len(short) <= width
        assert short == text or len(text) > width


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("width", [79, 80, 100, 140])
def test_numbers_stay_whole_and_stand_at_the_right(width: int, unicode: bool) -> None:
    rows = (
        ("onednn", "matmul", SHAPE, "bf16:bf16:f32", "52.6 ms", "1,070 s", "12.90", "a" * 60),
        ("mkl", "DGEMM", "m5", "f64", "9 ns", "8 us", "0.50", f"{'b' * 40} → {'c' * 40}"),
    )
    table = Listing(COLUMNS, (Group("slower (2)", rows),))
    made = narrowed(table, Page(width=width, unicode=unicode))
    cells = {name: [row[at] for row in made.groups[0].rows] for at, name in enumerate(made.columns)}
    assert cells[" before"] == ["52.6 ms", "   9 ns"]
    assert cells["  after"] == ["1,070 s", "   8 us"]
    assert cells["ratio"] == ["12.90", " 0.50"]
    widths = [
        max(len(name), *(len(row[at]) for row in made.groups[0].rows)) for at, name in enumerate(made.columns)
    ]
    assert sum(widths) + 2 + 2 * (len(widths) - 1) <= width
    assert made.notes
    assert "whole names" in made.notes[-1]


def test_a_page_that_is_too_narrow_for_numbers_tells_all_words_below_each_other() -> None:
    row = ("onednn", "matmul", SHAPE, "bf16", "1 ms", "2 ms", "2.00", "brg:avx512_core")
    made = narrowed(Listing(COLUMNS, (Group("slower (1)", (row,)),)), Page(width=40))
    assert SHAPE in made.groups[0].rows[0]


@pytest.mark.parametrize("columns", [80, 200])
def test_a_comparison_has_one_line_a_call(columns: int, tmp_path: Path) -> None:
    paths = []
    for name, kernel, took in (
        ("before", "brg_matmul:avx512_core_bf16", 1),
        ("after", "gemm:jit:avx512_core_bf16", 2),
    ):
        path = tmp_path / f"{name}.log"
        path.write_text(LINE.format(kernel=kernel, took=took) * 5)
        paths.append(str(path))
    done = backends("trace", "diff", *paths, environment={"COLUMNS": str(columns)})
    lines = done.stdout.splitlines()
    assert lines[1] == "slower (1)"
    assert lines[2].split("  ")[1] == ("matmul" if columns == 80 else "onednn")
    assert "2.00" in lines[2]
    assert max(map(len, lines)) <= columns
    kernels = "brg_matmul:avx512_core_bf16 → gemm:jit:avx512_core_bf16"
    assert (kernels in lines[2]) is (columns == 200)
    (change,) = json.loads(backends("trace", "diff", *paths, "--format", "json").stdout)["changes"]
    assert change["values"][2] == SHAPE
    assert change["implementation_after"] == "gemm:jit:avx512_core_bf16"

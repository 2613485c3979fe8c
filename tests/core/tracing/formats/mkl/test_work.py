"""Routines of MKL: names, arguments, and operation counts against plain loops and known totals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlbackends.tracing.formats.mkl.routines import element_type, routine, split_arguments, stems
from mlbackends.tracing.formats.mkl.work import formulas, work


def flops(stem: str, dtype: str = "f64", *, side: str = "L", **sizes: int) -> float | None:
    """Return the operations of a call."""
    return work(stem, dtype, sizes, {"side": side})[0]


def counted_cholesky(n: int) -> int:
    """Count what the textbook's Cholesky does, a root as one multiplication."""
    total = 0
    for j in range(n):
        total += 2 * j + 1
        for _ in range(j + 1, n):
            total += 2 * j + 1
    return total


def counted_elimination(m: int, n: int) -> int:
    """Count what Gaussian elimination does, a division as a multiplication."""
    return sum((m - k - 1) + 2 * (m - k - 1) * (n - k - 1) for k in range(min(m, n)))


def counted_triangle(m: int, n: int) -> int:
    """Count what solving a triangular system for n right sides does."""
    return n * sum(1 + 2 * k for k in range(m))


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_cholesky(n: int) -> None:
    assert flops("potrf", n=n) == pytest.approx(counted_cholesky(n), abs=n * n)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 7), (9, 4), (4, 9), (40, 30)])
def test_elimination(m: int, n: int) -> None:
    assert flops("getrf", m=m, n=n) == pytest.approx(counted_elimination(m, n), abs=2 * m * n)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 3), (30, 5)])
def test_triangles(m: int, n: int) -> None:
    assert flops("trsm", m=m, n=n) == counted_triangle(m, n)
    assert flops("trsm", m=n, n=m, side="R") == counted_triangle(m, n)


def test_products() -> None:
    assert flops("gemm", m=3, n=5, k=7) == 2 * 3 * 5 * 7
    assert flops("gemm", "c128", m=3, n=5, k=7) == 8 * 3 * 5 * 7
    assert flops("gemm_batch_strided", m=3, n=5, k=7, batch_size=11) == 2 * 3 * 5 * 7 * 11
    assert flops("syrk", n=4, k=10) == 4 * 5 * 10
    assert flops("dot", n=8) == 16


def test_drivers_are_their_parts() -> None:
    parts = (flops("getrf", m=20, n=20) or 0) + (flops("getrs", n=20, nrhs=3) or 0)
    assert flops("gesv", n=20, nrhs=3) == pytest.approx(parts, abs=2)


@pytest.mark.parametrize("stem", ["geev", "gesdd", "syevd", "nosuch"])
def test_what_depends_on_the_values_has_no_count(stem: str) -> None:
    assert flops(stem, m=5, n=5) is None


def test_sizes_behind_addresses_give_no_numbers() -> None:
    assert work("gemm", "f32", {}, {}) == (None, None)


def test_traffic_is_each_matrix_once() -> None:
    assert work("gemm", "f32", {"m": 3, "n": 5, "k": 7}, {})[1] == 4 * (21 + 35 + 15)
    assert work("omatcopy", "f64", {"rows": 3, "cols": 5}, {}) == (0, 2 * 8 * 15)


@pytest.mark.parametrize(
    ("stem", "letters", "dtype"),
    [("gemm", "s", "f32"), ("nrm2", "dz", "c128"), ("omatcopy", "mkl_c", "c64"),
     ("gemm_bf16bf16f32", "", "bf16:bf16:f32"), ("nosuch", "", "")],
)  # fmt: skip
def test_element_types(stem: str, letters: str, dtype: str) -> None:
    assert element_type(stem, letters) == dtype


TRACES = Path(__file__).resolve().parents[4] / "traces"


def test_there_are_the_routines_that_people_call() -> None:
    assert len(stems()) > 150
    for name in ("SGEMM", "cblas_dgemm", "dgesdd_", "LAPACKE_dpotrf_work", "scnrm2", "izamax"):
        assert routine(name)[2]


def test_no_routine_has_two_arguments_of_one_name() -> None:
    for stem in stems():
        found = [routine(prefix + stem)[2] for prefix in ("", "d", "c")]
        for names in found:
            assert len(set(names)) == len(names), stem


def test_what_work_is_known_of_is_in_the_table() -> None:
    assert {*formulas("operations"), *formulas("elements")} <= stems()


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.log")), ids=lambda path: path.stem)
def test_real_calls_have_as_many_arguments_as_the_table_says(path: Path) -> None:
    for name, arguments in re.findall(r"MKL_VERBOSE ([A-Za-z_]\w*)\((.*)\) .*CNR", path.read_text()):
        names = routine(name)[2]
        if name != "FFT":
            assert names, name
            assert len(split_arguments(arguments, len(names))) == len(names), name


@pytest.mark.parametrize(
    ("name", "stem", "letters"),
    [("SGEMM", "gemm", "s"), ("MKL_ZOMATCOPY", "omatcopy", "mkl_z"), ("DZASUM", "asum", "dz")],
)
def test_a_name_is_a_stem_and_a_precision(name: str, stem: str, letters: str) -> None:
    assert routine(name)[:2] == (stem, letters)


def test_braces_hold_their_commas() -> None:
    assert split_arguments("dcfi8,input_strides:{0,1},tLim:1", 0) == [
        "dcfi8",
        "input_strides:{0,1}",
        "tLim:1",
    ]
    assert split_arguments("", 0) == []

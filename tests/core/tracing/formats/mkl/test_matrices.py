"""The sizes of arrays: a leading dimension times columns, whichever way a matrix enters a product."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.model.registry import load
from mlbackends.model.trace import MklCall
from mlbackends.tracing.formats.mkl.matrices import elements, is_whole, least_leading
from mlbackends.tracing.formats.mkl.routines import argument_names, routine, stems

ADDRESS = "0x1f"


def sized(call: str) -> dict[str, int]:
    record = load("mlbackends.tracing.formats", "mkl").parse(
        f"MKL_VERBOSE {call} 1.50us CNR:OFF Dyn:1 FastMM:1"
    )
    assert isinstance(record, MklCall), call
    stem, arguments = routine(record.signature.routine)[0], record.derived.arguments
    return {
        name: elements(stem, name, arguments)
        for name, value in arguments.items()
        if value.startswith("0x") and name not in {"alpha", "beta", "info"}
    }


@pytest.mark.parametrize(
    ("call", "sizes"),
    [
        (
            "SGEMM(T,N,50257,8,768,0x1,0x2,768,0x3,768,0x4,0x5,50257)",
            {"a": 768 * 50257, "b": 768 * 8, "c": 50257 * 8},
        ),
        ("SGEMM(N,T,5,6,7,0x1,0x2,8,0x3,9,0x4,0x5,10)", {"a": 8 * 7, "b": 9 * 7, "c": 10 * 6}),
        ("DSYRK(U,T,5,6,0x1,0x2,8,0x4,0x5,10)", {"a": 8 * 5, "c": 10 * 5}),
        ("DTRSM(R,U,N,N,5,6,0x1,0x2,8,0x3,9)", {"a": 8 * 6, "b": 9 * 6}),
        ("SGEMV(T,5,6,0x1,0x2,8,0x3,1,0x4,0x5,-2)", {"a": 8 * 6, "x": 7, "y": 13}),
        ("SAXPY(9,0x1,0x2,3,0x3,1)", {"x": 28, "y": 10}),
        ("DSPR(U,5,0x1,0x2,1,0x3)", {"x": 6, "ap": 15}),
        ("DGBMV(N,50,60,2,3,0x1,0x2,8,0x3,1,0x4,0x5,1)", {"a": 8 * 60, "x": 61, "y": 61}),
        (
            "DORMQR(L,N,50,60,7,0x2,51,0x3,0x4,52,0x5,99,0x6)",
            {"a": 51 * 7, "tau": 8 * 60, "c": 52 * 60, "work": 99},
        ),
        ("MKL_SOMATCOPY(r,t,4,6,1.000000,0x2,8,0x3,9)", {"a": 32, "b": 54}),
    ],
)
def test_a_matrix_takes_its_leading_dimension_times_its_columns(
    call: str, sizes: dict[str, int]
) -> None:
    assert sized(call) == sizes


@pytest.mark.parametrize(("words", "leading"), [(("N", "N"), (5, 7, 5)), (("T", "C"), (7, 6, 5))])
def test_the_least_leading_dimension_is_the_rows(
    words: tuple[str, str], leading: tuple[int, int, int]
) -> None:
    arguments = dict(zip(("transa", "transb", "m", "n", "k"), (*words, "5", "6", "7"), strict=True))
    found = tuple(least_leading("gemm", name, arguments) for name in ("lda", "ldb", "ldc"))
    assert found == leading


@given(st.sampled_from(sorted(stems())), st.data())
def test_every_array_of_every_routine_has_a_size(stem: str, data: st.DataObject) -> None:
    names = argument_names(stem) or argument_names(f"d{stem}") or ()
    values = st.sampled_from((ADDRESS, "N", "T", "R", "0", "1", "-1", "37", "0.5"))
    arguments = {name: data.draw(values) for name in names}
    for name in names:
        if arguments[name] == ADDRESS:
            assert elements(stem, name, arguments) >= 0
        if name.startswith("ld") and is_whole(arguments[name]):
            assert least_leading(stem, name, arguments) >= 1

"""Leading dimensions with nothing between the columns, whichever way a matrix enters a product."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.formats.mkl.matrices import least_leading
from mlbackends.tracing.formats.mkl.routines import routine, stems

ADDRESS = "0x1f"


@pytest.mark.parametrize(("words", "leading"), [(("N", "N"), (5, 7, 5)), (("T", "C"), (7, 6, 5))])
def test_the_least_leading_dimension_is_the_rows(
    words: tuple[str, str], leading: tuple[int, int, int]
) -> None:
    arguments = dict(zip(("transa", "transb", "m", "n", "k"), (*words, "5", "6", "7"), strict=True))
    found = tuple(least_leading("gemm", name, arguments) for name in ("lda", "ldb", "ldc"))
    assert found == leading


@pytest.mark.parametrize(
    ("stem", "name", "arguments", "rows"),
    [
        ("gemmt", "lda", {"transa": "T", "n": "5", "k": "7"}, 7),
        ("syrk", "lda", {"trans": "T", "n": "5", "k": "6"}, 6),
        ("trsm", "lda", {"side": "R", "m": "5", "n": "6"}, 6),
        ("trsm", "ldb", {"side": "R", "m": "5", "n": "6"}, 5),
        ("gbmv", "lda", {"m": "50", "n": "60", "kl": "2", "ku": "3"}, 6),
        ("gbtrf", "ldab", {"m": "50", "n": "60", "kl": "2", "ku": "3"}, 8),
        ("pbtrf", "ldab", {"n": "60", "kd": "3"}, 4),
        ("ormqr", "lda", {"side": "L", "m": "50", "n": "60", "k": "7"}, 50),
        ("ormlq", "lda", {"side": "L", "m": "50", "n": "60", "k": "7"}, 7),
        ("ormbr", "lda", {"vect": "P", "side": "L", "m": "50", "n": "60", "k": "7"}, 7),
        ("gels", "ldb", {"m": "50", "n": "60", "nrhs": "1"}, 60),
        ("getrs", "ldb", {"n": "9", "nrhs": "2"}, 9),
        ("gesvd", "ldu", {"m": "5", "n": "6"}, 5),
        ("gesvd", "ldvt", {"m": "5", "n": "6"}, 6),
        ("bdsqr", "ldu", {"n": "6", "ncvt": "1", "nru": "4", "ncc": "0"}, 4),
        ("geqrt", "ldt", {"m": "50", "n": "60", "nb": "8"}, 8),
        ("trsyl", "ldb", {"m": "5", "n": "6"}, 6),
        ("nosuch", "ldq", {"m": "5", "n": "6", "lda": "99"}, 6),
    ],
)
def test_each_routine_stores_the_rows_that_lapack_says(
    stem: str, name: str, arguments: dict[str, str], rows: int
) -> None:
    assert least_leading(stem, name, arguments) == rows


@given(st.sampled_from(sorted(stems())), st.data())
def test_every_matrix_of_every_routine_has_rows(stem: str, data: st.DataObject) -> None:
    names = routine(stem)[2] or routine(f"d{stem}")[2]
    values = st.sampled_from(("0x1f", "N", "T", "R", "0", "1", "-1", "37", "0.5"))
    arguments = {name: data.draw(values) for name in names}
    for name in names:
        if name.startswith("ld"):
            assert least_leading(stem, name, arguments) >= 1

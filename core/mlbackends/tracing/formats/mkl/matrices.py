"""How many rows the matrices of a BLAS or LAPACK call store: their least leading dimensions.

Matrices are column-major, as MKL prints every call. A size that is not in the line counts as
the largest of those it does.

Source: the reference BLAS and LAPACK 3.12 (netlib.org), which state each argument's dimensions.
"""

from collections.abc import Callable, Mapping

from mlbackends.tracing.numbers import whole_number


class _Call:
    """The sizes and words of a call, by the names of its arguments."""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.sizes = {
            name: abs(number)
            for name, text in arguments.items()
            if (number := whole_number(text)) is not None
        }
        self.words = {name: text.upper() for name, text in arguments.items() if text.isalpha()}
        apart = ("ld", "inc", "stride")
        sizes = (
            size
            for name, size in self.sizes.items()
            if not name.startswith(apart) and not name.endswith("work")
        )
        self.largest = max([1, *sizes])

    def __getitem__(self, name: str) -> int:
        return self.sizes.get(name, self.largest)

    def stored(self, transposition: str, rows: str, columns: str) -> int:
        """Return the stored rows of a matrix that enters a product as rows by columns."""
        return self[rows if self.words.get(transposition, "N") == "N" else columns]

    @property
    def side(self) -> int:
        """The order of the matrix on the left or right."""
        return self["m" if self.words.get("side", "L") == "L" else "n"]

    @property
    def band(self) -> int:
        """The diagonals of a matrix that is stored by them."""
        if "kl" in self.sizes:
            return self["kl"] + self["ku"] + 1
        return self["kd" if "kd" in self.sizes else "k"] + 1


def least_leading(stem: str, name: str, arguments: Mapping[str, str]) -> int:
    """Return the leading dimension of a matrix with nothing between its columns. name: such as "lda"."""
    call = _Call(arguments)
    matrix = name.removeprefix("ld")
    # The rows of a matrix of this name in most routines of LAPACK.
    has_right_sides = matrix in {"b", "x"} and "nrhs" in call.sizes
    if rule := _ROWS.get((stem, matrix)):
        rows = rule(call)
    elif matrix in {"vt", "z", "vl", "vr", "vs", "h"} or has_right_sides:
        rows = call["n"]
    elif matrix in {"a", "af", "b", "c", "u", "x"}:
        rows = call["m" if "m" in call.sizes else "n"]
    else:
        rows = call.largest
    return max(1, rows)


_PRODUCTS = (
    "gemm gemm3m gemm_batch_strided gemm_compute gemm_bf16bf16f32 gemm_f16f16f32 gemm_s8u8s32"
)
_BANDS = "gbmv hbmv sbmv tbmv tbsv gbtrf gbtrs gbsv pbtrf pbtrs pbsv"
_RULES: tuple[tuple[str, str, Callable[[_Call], int]], ...] = (
    (f"{_PRODUCTS} gemm_s16s16s32", "a", lambda call: call.stored("transa", "m", "k")),
    (f"{_PRODUCTS} gemm_s16s16s32", "b", lambda call: call.stored("transb", "k", "n")),
    ("gemmt", "a", lambda call: call.stored("transa", "n", "k")),
    ("gemmt", "b", lambda call: call.stored("transb", "k", "n")),
    ("symm hemm trmm trsm ormtr unmtr ormhr ormqr unmqr", "a", lambda call: call.side),
    ("syrk herk syr2k her2k", "a b", lambda call: call.stored("trans", "n", "k")),
    (_BANDS, "a", lambda call: call.band),
    (_BANDS, "ab", lambda call: call.band + call.sizes.get("kl", 0)),
    ("gels gelsd gelss gelsy", "b", lambda call: max(call["m"], call["n"])),
    ("ormlq unmlq", "a", lambda call: call["k"]),
    (
        "ormbr unmbr",
        "a",
        lambda call: min(call.side, call["k"]) if call.words.get("vect") == "P" else call.side,
    ),
    ("trsyl", "a", lambda call: call["m"]),
    ("trsyl", "b", lambda call: call["n"]),
    ("bdsqr", "c", lambda call: call["n"]),
    ("bdsqr", "u", lambda call: call["nru"]),
    ("geqrt", "t", lambda call: call["nb"]),
)
_ROWS = {
    (stem, name): rule
    for stems, names, rule in _RULES
    for stem in stems.split()
    for name in names.split()
}

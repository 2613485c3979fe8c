"""How large the arrays of a BLAS or LAPACK call are, in elements, from the sizes that its line tells.

Matrices stand column by column, as MKL prints every call: one takes its leading dimension times its
columns. Where a routine is not told here, its arrays are taken for larger than they need be, never
for smaller.

Source: the reference BLAS and LAPACK 3.12 (netlib.org), which state each argument's dimensions;
oneMKL Developer Reference for its copies.
"""

from collections.abc import Callable, Mapping

Arguments = Mapping[str, str]
Extent = tuple[int, int]
_MORE = 8
"""No vector, and no room for work whose size is not an argument, takes more of the largest size."""


class Call:
    """The sizes and words of a call, by the names of its arguments."""

    def __init__(self, arguments: Arguments) -> None:
        self.numbers = {name: int(text) for name, text in arguments.items() if is_whole(text)}
        self.words = {name: text.upper() for name, text in arguments.items() if text.isalpha()}
        self.largest = max(
            [1, *(abs(each) for name, each in self.numbers.items() if not _is_no_size(name))]
        )

    def size(self, name: str) -> int:
        """Return one size; the largest of all where it is not told."""
        return abs(self.numbers.get(name, self.largest))

    def turned(self, name: str, rows: int, columns: int) -> Extent:
        """Return what is stored of a matrix that enters a product as rows by columns."""
        return (rows, columns) if self.words.get(name, "N") == "N" else (columns, rows)

    @property
    def side(self) -> int:
        """The order of what stands at the left or at the right."""
        return self.size("m" if self.words.get("side", "L") == "L" else "n")


def is_whole(value: str) -> bool:
    """Tell whether an argument is an integer."""
    return value.isascii() and value.removeprefix("-").isdecimal()


def elements(stem: str, name: str, arguments: Arguments) -> int:
    """Return how many elements an array needs, by the routine's stem and the array's name."""
    call = Call(arguments)
    if stem in {"omatcopy", "imatcopy", "omatcopy2", "omatadd"}:
        return _copied(call, name)
    if name == "ap":
        return call.size("n") * (call.size("n") + 1) // 2
    if name.endswith("work"):
        return _room(call, stem, name)
    leading = call.numbers.get(f"ld{name}")
    if leading is not None:
        return max(1, abs(leading)) * max(1, extent(call, stem, name)[1])
    own = abs(call.numbers.get(f"inc{name}", 0))
    if own:
        return 1 + own * max(call.numbers.get("m", 0), call.size("n"))
    steps = (abs(each) for each_name, each in call.numbers.items() if each_name.startswith("inc"))
    return _MORE * call.largest * max(steps, default=1)


def least_leading(stem: str, name: str, arguments: Arguments) -> int:
    """Return the leading dimension of a matrix with nothing between its columns. name: such as "lda"."""
    return max(1, extent(Call(arguments), stem, name.removeprefix("ld"))[0])


def extent(call: Call, stem: str, name: str) -> Extent:
    """Return the rows and columns that are stored of a matrix."""
    told = _EXTENTS.get(stem)
    found = told(call).get(name) if told else None
    return found or _usual(call, name)


def _usual(call: Call, name: str) -> Extent:
    """Return what a matrix of this name is in most routines of LAPACK."""
    order = call.size("n")
    rows = call.size("m") if "m" in call.numbers else order
    if name in {"a", "af", "c"}:
        return rows, order
    if name in {"b", "x"}:
        if "nrhs" in call.numbers:
            return order, call.size("nrhs")
        return rows, order
    if name == "u":
        return rows, rows
    if name in {"vt", "z", "vl", "vr", "vs", "h"}:
        return order, order
    return call.largest, call.largest


def _gemm(call: Call) -> dict[str, Extent]:
    m, n, k = (call.size(each) for each in "mnk")
    return {"a": call.turned("transa", m, k), "b": call.turned("transb", k, n), "c": (m, n)}


def _gemmt(call: Call) -> dict[str, Extent]:
    n, k = call.size("n"), call.size("k")
    return {"a": call.turned("transa", n, k), "b": call.turned("transb", k, n), "c": (n, n)}


def _sided(call: Call) -> dict[str, Extent]:
    return {"a": (call.side, call.side)}


def _ranked(call: Call) -> dict[str, Extent]:
    n = call.size("n")
    given = call.turned("trans", n, call.size("k"))
    return {"a": given, "b": given, "c": (n, n)}


def _banded(call: Call) -> dict[str, Extent]:
    if "kl" in call.numbers:
        rows = call.size("kl") + call.size("ku") + 1
        return {"a": (rows, call.size("n")), "ab": (call.size("kl") + rows, call.size("n"))}
    rows = call.size("kd" if "kd" in call.numbers else "k") + 1
    return {"a": (rows, call.size("n")), "ab": (rows, call.size("n"))}


def _least_squares(call: Call) -> dict[str, Extent]:
    return {"b": (max(call.size("m"), call.size("n")), call.size("nrhs"))}


def _reflected(call: Call) -> dict[str, Extent]:
    return {"a": (call.side, call.size("k"))}


def _reflected_by_rows(call: Call) -> dict[str, Extent]:
    return {"a": (call.size("k"), call.side)}


def _bidiagonal(call: Call) -> dict[str, Extent]:
    least = min(call.side, call.size("k"))
    by_rows = call.words.get("vect", "Q") == "P"
    return {"a": (least, call.side) if by_rows else (call.side, least)}


def _sylvester(call: Call) -> dict[str, Extent]:
    m, n = call.size("m"), call.size("n")
    return {"a": (m, m), "b": (n, n), "c": (m, n)}


def _bidiagonal_values(call: Call) -> dict[str, Extent]:
    n = call.size("n")
    return {"vt": (n, call.size("ncvt")), "u": (call.size("nru"), n), "c": (n, call.size("ncc"))}


def _blocked(call: Call) -> dict[str, Extent]:
    return {"t": (call.size("nb"), min(call.size("m"), call.size("n")))}


_EXTENTS: dict[str, Callable[[Call], dict[str, Extent]]] = {
    **dict.fromkeys(("gemm", "gemm3m", "gemm_batch_strided", "gemm_compute"), _gemm),
    **dict.fromkeys(("gemm_bf16bf16f32", "gemm_f16f16f32"), _gemm),
    **dict.fromkeys(("gemm_s8u8s32", "gemm_s16s16s32"), _gemm),
    "gemmt": _gemmt,
    **dict.fromkeys(("symm", "hemm", "trmm", "trsm"), _sided),
    **dict.fromkeys(("syrk", "herk", "syr2k", "her2k"), _ranked),
    **dict.fromkeys(("gbmv", "hbmv", "sbmv", "tbmv", "tbsv"), _banded),
    **dict.fromkeys(("gbtrf", "gbtrs", "gbsv", "pbtrf", "pbtrs", "pbsv"), _banded),
    **dict.fromkeys(("gels", "gelsd", "gelss", "gelsy"), _least_squares),
    **dict.fromkeys(("ormqr", "unmqr"), _reflected),
    **dict.fromkeys(("ormlq", "unmlq"), _reflected_by_rows),
    **dict.fromkeys(("ormbr", "unmbr"), _bidiagonal),
    **dict.fromkeys(("ormtr", "unmtr", "ormhr"), _sided),
    "bdsqr": _bidiagonal_values,
    "trsyl": _sylvester,
    "geqrt": _blocked,
}


def _is_no_size(name: str) -> bool:
    return name.startswith(("ld", "inc", "stride")) or name.endswith("work")


def _copied(call: Call, name: str) -> int:
    """Return the elements of a matrix of MKL's copies, which may stand row by row."""
    rows, columns = call.size("rows"), call.size("cols")
    by_rows = call.words.get("ordering", "C") == "R"
    leading = [max(1, abs(call.numbers.get(each, 1))) for each in ("lda", "ldb", "ldc")]
    steps = max(1, *(abs(call.numbers.get(each, 1)) for each in ("stridea", "strideb")))
    straight, turned = (rows, columns) if by_rows else (columns, rows)
    if name == "ab":  # in place: as it was, and as it becomes
        return max(leading[0] * straight, leading[1] * max(straight, turned))
    own = call.numbers.get(f"ld{name}", max(leading))
    is_straight = name == "c" or (name == "a" and "transa" not in call.words)
    lines = straight if is_straight else max(straight, turned)
    return (max(1, abs(own)) * lines) * steps


def _room(call: Call, stem: str, name: str) -> int:
    """Return how much room for work a routine takes where its line does not say so."""
    told = call.numbers.get(f"l{name}", 0)
    if told > 0:
        return told
    large, small = call.largest, min(call.size("m"), call.size("n"))
    quadratic = {
        ("geqrt", "work"): call.size("nb") * call.size("n"),
        ("larfb", "work"): call.size("ldwork") * call.size("k"),
        ("gesdd", "rwork"): small * max(5 * small + 7, 2 * large + 2 * small + 1),
        ("bdsdc", "work"): 3 * large * large,
        ("gelsd", "iwork"): 64 * large,
    }
    return max(_MORE * large, quadratic.get((stem, name), 0) + _MORE * large)

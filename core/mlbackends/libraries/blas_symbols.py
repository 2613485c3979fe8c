"""Which BLAS a file is, by the functions that it defines, and a check of one matrix product."""

import sys

from mlbackends.base.errors import NotALibrary
from mlbackends.base.reasons import NotUsable
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.library_names import stem_of
from mlbackends.libraries.symbols import extract_symbols, headers
from mlbackends.model.records import Library

#: What builds of OpenBLAS put before and after each of its function names.
OPENBLAS_AFFIXES = (("", ""), ("scipy_", ""), ("", "64_"), ("scipy_", "64_"))


def implementation_of(host: Host, library: Library) -> str:
    """Return openblas, mkl, blis, flexiblas, armpl, nvpl, atlas or netlib; "" if none fits.

    netlib is the reference implementation: it has the standard's functions and no symbols of another one.
    blas.json lists the symbols in this order, because FlexiBLAS and MKL also have functions of others.
    """
    symbols: dict[str, list[str]] = table("libraries/blas")["symbols"]
    try:
        names = [name for names in symbols.values() for name in names]
        defined = extract_symbols(host, library.path, names)
        needed = headers(host, library.path).needed
    except (NotALibrary, OSError):
        return ""
    implementations = [name for name, names in symbols.items() if not defined.isdisjoint(names)]
    if implementations and implementations[0] != "netlib":
        return implementations[0]
    needed_libraries: dict[str, str] = table("libraries/blas")["needed_libraries"]
    by_need = (needed_libraries.get(stem_of(file)) for file in needed)
    return next(filter(None, by_need), "netlib" if implementations else "")


def openblas_affixes(opened: CDLL) -> tuple[str, str] | None:
    """Return the prefix and suffix of the function names of an opened OpenBLAS."""
    for before, after in OPENBLAS_AFFIXES:
        if hasattr(opened, f"{before}openblas_get_config{after}"):
            return before, after
    return None


def fortran_integer(bits: int = 32) -> "type[ctypes.c_int64 | ctypes.c_int32]":
    """Return the type of integers for Fortran, which receives all arguments by address.

    bits: what the library was built for, if that is known. On little-endian machines the low half of a
    64-bit integer is where a 32-bit one is read, so the wide type serves both.
    """
    narrow = bits == 32 and sys.byteorder == "big"
    return ctypes.c_int32 if narrow else ctypes.c_int64


def require_product(opened: CDLL, function: str = "dgemm_", integer_bits: int = 32) -> None:
    """Multiply two small matrices, and compare the product exactly.

    function: the library's Fortran name of `dgemm`; if it is missing, `cblas_dgemm` with 32-bit integers is
    used. Raises NotUsable if the product is wrong.
    """
    double = ctypes.c_double
    left = (double * 6)(1, 2, 3, 4, 5, 6)  # 2 rows of 3
    right = (double * 6)(7, 8, 9, 10, 11, 12)  # 3 rows of 2
    product = (double * 4)(*[float("nan")] * 4)
    if hasattr(opened, function):
        constants = (ctypes.c_char(b"N"), double(1), double(0))
        as_is, one, zero = (ctypes.byref(constant) for constant in constants)
        two, three = (ctypes.byref(fortran_integer(integer_bits)(size)) for size in (2, 3))
        # Fortran's columns are our rows: it sees both transposed, and right' left' is (left right)'.
        operands = (as_is, as_is, two, two, three, one, right, two, left, three, zero, product, two)
        lengths_of_strings = (ctypes.c_size_t(1), ctypes.c_size_t(1))
        getattr(opened, function)(*operands, *lengths_of_strings)
    else:
        function, rows, straight = "cblas_dgemm", 101, 111
        sizes = (rows, straight, straight, 2, 2, 3)
        opened.cblas_dgemm(*sizes, double(1), left, 3, right, 2, double(0), product, 2)
    require_equal(function, list(product), [58.0, 64.0, 139.0, 154.0])


def require_equal(function: str, result: list[float], expected: list[float]) -> None:
    """Raise NotUsable unless a function computed exactly the expected numbers."""
    if result != expected:
        raise NotUsable("wrong-result", f"{function} gave {result}; expected {expected}")

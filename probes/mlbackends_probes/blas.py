"""BLAS: which one the system's libblas, libcblas and liblapack really are.

Finds:    every file of those names, with what it resolves to, distinguished by the functions inside.
Usable:   dgemm multiplies two matrices correctly; of LAPACK, dgesv solves two equations correctly.
Caveats:  numpy and torch from wheels do not use it; programs of the system and of conda do. netlib
          is the reference, which is slow.
Source:   BLAS and LAPACK reference implementation (netlib): dgemm, dgesv, ilaver.
"""

import os

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable
from mlbackends.host.host import Host
from mlbackends.libraries.blas_symbols import (
    fortran_integer,
    implementation_of,
    require_equal,
    require_product,
)
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.library_names import stem_of
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, FactValue, Finding, Library, nonempty


def _described(host: Host, library: Library) -> Library:
    real = host.realpath(library.path)
    facts = {
        "real_path": real if real != library.path else "",
        "implementation": "" if library.reasons else implementation_of(host, library),
    }
    return replace(library, facts=nonempty(facts))


LIBRARY = SharedLibrary(
    "blas",
    (
        "libblas", "libcblas", "liblapack", "libblas64", "liblapack64", "libatlas", "libsatlas",
        "libtatlas", "libarmpl_lp64", "libarmpl_lp64_mp", "libnvpl_blas_core",
    ),
    homes=("ARMPL_DIR", "ATLAS_ROOT"),
    missing="libblas, libcblas or liblapack",
    describe=_described,
)  # fmt: skip


def find(host: Host) -> Finding:
    """Look for the names that programs ask for, and follow them."""
    finding = LIBRARY.find(host)
    facts = {**finding.facts}
    for library in finding.libraries:
        name = stem_of(os.path.basename(library.path)).removeprefix("lib")
        if name in ("blas", "cblas", "lapack") and "implementation" in library.facts:
            facts.setdefault(name, library.facts["implementation"])
    return replace(finding, facts=facts)


def load(opened: CDLL, library: Library) -> Answer:
    """Return LAPACK's version; BLAS has none."""
    facts: dict[str, FactValue] = {**library.facts}
    if hasattr(opened, "ilaver_"):
        parts = [fortran_integer()() for _ in range(3)]
        opened.ilaver_(*map(ctypes.byref, parts))
        numbers = [part.value for part in parts]
        if 0 < numbers[0] < 100 and max(numbers) < 1000:
            version = ".".join(map(str, numbers))
            facts["lapack_version"] = version
            if stem_of(os.path.basename(library.path)).startswith("liblapack"):
                library = replace(library, version=version)
    return Answer(library, facts=facts)


def use(opened: CDLL, library: Library) -> Answer:
    """Compute with whichever of the three interfaces the file has."""
    if hasattr(opened, "dgemm_") or hasattr(opened, "cblas_dgemm"):
        require_product(opened)
    elif hasattr(opened, "dgesv_"):  # solve 2x = 2 and 4y = 8
        integer = fortran_integer()
        matrix, right = (ctypes.c_double * 4)(2, 0, 0, 4), (ctypes.c_double * 2)(2, 8)
        pivots, info = (integer * 2)(), integer()
        two, one = ctypes.byref(integer(2)), ctypes.byref(integer(1))
        opened.dgesv_(two, one, matrix, two, pivots, right, two, ctypes.byref(info))
        if info.value:
            raise NotUsable("call-failed", f"dgesv returned info {info.value}")
        require_equal("dgesv", list(right), [1.0, 2.0])
    else:
        raise NotUsable("no-use-check", "it has neither dgemm_ nor cblas_dgemm nor dgesv_")
    return Answer(library)

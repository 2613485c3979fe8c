"""FFTW: Fourier transforms on processors.

Finds:    libfftw3 in every precision (f: float, l: long double, q: quadruple), in wheels too.
Usable:   the transform of a single one is all ones.
Caveats:  threads are in separate libraries (libfftw3_threads, libfftw3_omp). Python has no type for
          quadruple precision, so only the version of that copy is read.
Source:   FFTW 3.3 manual: "Version Number Check", fftw_plan_dft_1d, fftw_execute.
"""

import os
import re

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable
from mlbackends.host.host import Host
from mlbackends.libraries.blas_symbols import require_equal
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.library_names import stem_of
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, Library, nonempty

_PRECISIONS = {
    "libfftw3": ("fftw", "double"),
    "libfftw3f": ("fftwf", "float"),
    "libfftw3l": ("fftwl", "long double"),
    "libfftw3q": ("fftwq", "quadruple"),
}


def _described(host: Host, library: Library) -> Library:
    folder, name = os.path.split(library.path)
    stem = stem_of(name).removesuffix("-3")  # as it ends under Windows
    beside = {stem_of(other) for other in host.listdir(folder) if other.startswith("libfftw3")}
    threads = [kind for kind in ("threads", "omp") if f"{stem}_{kind}" in beside]
    facts = {"precision": _PRECISIONS[stem][1], "threads": threads}
    return replace(library, facts=nonempty(facts))


LIBRARY = SharedLibrary(
    "fftw",
    tuple(_PRECISIONS),
    homes=("FFTW_ROOT", "FFTW_DIR", "FFTWDIR"),
    describe=_described,
)
find = LIBRARY.find


def load(opened: CDLL, library: Library) -> Answer:
    """Read the version, which is a variable and not a function."""
    prefix, _ = _PRECISIONS[stem_of(os.path.basename(library.path))]
    try:
        variable = (ctypes.c_char * 8).in_dll(opened, f"{prefix}_version")
    except ValueError:
        message = f"{library.path} has no variable {prefix}_version"
        raise NotUsable("missing-symbol", message) from None
    # An array of unknown length that ends in NUL.
    text = ctypes.string_at(ctypes.addressof(variable)).decode(errors="replace")
    version, *rest = text.removeprefix(f"{prefix}-").removeprefix("fftw-").split("-")
    facts = nonempty({**library.facts, "instruction_sets": rest})
    if re.fullmatch(r"\d+(\.\d+)*\w*", version):
        library = replace(library, version=version)
    return Answer(library, facts=facts)


def use(opened: CDLL, library: Library) -> Answer:
    """Transform 1, 0, 0, 0."""
    prefix, precision = _PRECISIONS[stem_of(os.path.basename(library.path))]
    kinds = {"double": "c_double", "float": "c_float", "long double": "c_longdouble"}
    if precision not in kinds:
        raise NotUsable("no-use-check", f"Python has no type for {precision} precision")
    real = getattr(ctypes, kinds[precision])
    signal = (real * 8)(1, 0, 0, 0, 0, 0, 0, 0)  # four complex numbers
    spectrum = (real * 8)()
    plan_of = getattr(opened, f"{prefix}_plan_dft_1d")
    plan_of.restype = ctypes.c_void_p
    forward, estimate = -1, ctypes.c_uint(1 << 6)
    plan = plan_of(4, signal, spectrum, forward, estimate)
    if not plan:
        raise NotUsable("call-failed", f"{prefix}_plan_dft_1d returned no plan")
    execute = getattr(opened, f"{prefix}_execute")
    execute(ctypes.c_void_p(plan))
    require_equal(f"{prefix}_execute", [float(number) for number in spectrum], [1.0, 0.0] * 4)
    return Answer(library)

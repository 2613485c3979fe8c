"""OpenBLAS: the BLAS and LAPACK that numpy and scipy bring.

Finds:    every libopenblas, also under the names that numpy, scipy and distributions give it.
Usable:   dgemm multiplies two matrices right.
Caveats:  each package brings a copy with threads of its own; the function names of a copy may have
          `scipy_` before and `64_` after them. The kernels are chosen when it is opened.
Source:   OpenBLAS user manual, "Extensions": openblas_get_config, openblas_get_corename,
          openblas_get_parallel; "Runtime variables".
"""

import os
import re

from msgspec.structs import replace

from mlbackends.libraries.blas_symbols import openblas_affixes, require_product
from mlbackends.libraries.c_calls import CDLL, Calls
from mlbackends.libraries.shared_library import SharedLibrary
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Library, nonempty

LIBRARY = SharedLibrary(
    "openblas",
    (
        "libopenblas", "libscipy_openblas64_", "libscipy_openblas", "libopenblasp", "libopenblaso",
        "libopenblas64", "libopenblas64_", "libopenblas_64", "libopenblasp64", "libopenblasp64_",
        "libopenblaso64", "libopenblaso64_", "libopenblasp-r0", "libopenblas64_p-r0", "openblas",
    ),
    homes=("OPENBLAS_HOME", "OPENBLAS_ROOT"),
    folders=(
        *(
            f"/usr/lib/{{machine}}-linux-gnu/openblas{wide}-{kind}"
            for wide in ("", "64") for kind in ("pthread", "openmp", "serial")
        ),
        "/opt/OpenBLAS/lib",
    ),
    wheels=("scipy_openblas64/lib", "scipy_openblas32/lib"),
)  # fmt: skip
find = LIBRARY.find


def load(opened: CDLL, library: Library) -> Answer:
    """Ask how it was built and which kernels it chose."""
    affixes = openblas_affixes(opened)
    if affixes is None:
        raise NotUsable("missing-symbol", f"{library.path} has no function openblas_get_config")
    before, after = affixes
    call = Calls(opened)

    def has(name: str) -> bool:
        return hasattr(opened, f"{before}openblas_{name}{after}")

    def number(name: str) -> int:
        return call.status(f"{before}openblas_{name}{after}") if has(name) else -1

    text = " ".join(call.text(f"{before}openblas_get_config{after}").split())
    core = call.text(f"{before}openblas_get_corename{after}") if has("get_corename") else ""
    threads, limit = number("get_num_threads"), re.search(r"MAX_THREADS=(\d+)", text)
    facts = {
        "config": text,
        "architecture": core,
        "threading": {0: "serial", 1: "pthreads", 2: "openmp"}.get(number("get_parallel")),
        "threads": threads if threads > 0 else None,
        "built_for_threads": int(limit[1]) if limit else None,
        "integer_bits": 64 if "USE64BITINT" in text or after == "64_" else 32,
        "symbol_prefix": before,
        "symbol_suffix": after,
    }
    if version := re.match(r"OpenBLAS (\S+)", text):
        library = replace(library, version=version[1])
    wanted = os.environ.get("OPENBLAS_CORETYPE", "")
    if not wanted or not core or wanted.lower() == core.lower():
        return Answer(library, facts=nonempty(facts))
    message = f"OPENBLAS_CORETYPE is {wanted!r}, and OpenBLAS uses the kernels for {core}"
    hint = "the build has no kernels of that name, or this processor cannot run them"
    warning = Reason("override-invalid", message, hint)
    return Answer(library, facts=nonempty(facts), warnings=(warning,))


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices."""
    before, after = openblas_affixes(opened) or ("", "")
    # A suffix goes after the underscore that Fortran's names end with: dgemm_64_.
    require_product(opened, f"{before}dgemm_{after}", 64 if after else 32)
    return Answer(library)

"""BLIS: a BLAS in which only a few kernels are written for each processor.

Finds:    every libblis and libblis-mt, AMD's (AOCL) too.
Usable:   dgemm multiplies two matrices correctly, if BLIS was built with BLAS's names.
Caveats:  0.9 names Zen 3 on a Zen 4. Without a BLAS interface nothing is computed here.
Source:   BLIS, "BLIS Typed API": bli_info_get_version_str, bli_arch_query_id, bli_arch_string;
          "Multithreading".
"""

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable
from mlbackends.libraries.blas_symbols import require_product
from mlbackends.libraries.c_calls import CDLL, Calls, ctypes
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, FactValue, Library

LIBRARY = SharedLibrary(
    "blis",
    ("libblis", "libblis-mt", "libblis64", "libblis_mt"),
    homes=("BLIS_HOME", "BLIS_ROOT", "AOCL_ROOT"),
    folders=tuple(
        f"/usr/lib/{{machine}}-linux-gnu/blis-{kind}" for kind in ("pthread", "openmp", "serial")
    ),
)
find = LIBRARY.find


def load(opened: CDLL, library: Library) -> Answer:
    """Ask how it was built and which kernels it chose."""
    call = Calls(opened)
    facts: dict[str, FactValue] = {}
    version = call.text("bli_info_get_version_str").strip()
    if all(hasattr(opened, name) for name in ("bli_arch_query_id", "bli_arch_string")):
        name = call.text("bli_arch_string", call.status("bli_arch_query_id"))
        facts |= {"architecture": name} if name else {}
    for kind in ("openmp", "pthreads"):
        if (is_enabled := call.number(f"bli_info_get_enable_{kind}", -1)) >= 0:
            facts.setdefault("threading", "serial")
            if is_enabled:
                facts["threading"] = kind
                break
    if hasattr(opened, "bli_thread_get_num_threads"):
        opened.bli_thread_get_num_threads.restype = ctypes.c_int64
        # -1 is "not set", which is one thread.
        facts["threads"] = max(1, int(opened.bli_thread_get_num_threads()))
    if (bits := call.number("bli_info_get_blas_int_type_size", 0)) in (32, 64):
        facts["integer_bits"] = bits
    return Answer(replace(library, version=version or library.version), facts=facts)


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices, where it has BLAS's names."""
    if not hasattr(opened, "dgemm_"):
        message = "it was built without BLAS's function names, so nothing was computed"
        raise NotUsable("no-use-check", message)
    require_product(opened)
    return Answer(library)

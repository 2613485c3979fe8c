"""BLIS: a BLAS in which only a few kernels are written for each processor.

Finds:    every libblis and libblis-mt, AMD's (AOCL) too.
Usable:   dgemm multiplies two matrices right, where BLIS was built with BLAS's names.
Caveats:  0.9 names Zen 3 on a Zen 4. Without a BLAS interface nothing is computed here.
Source:   BLIS, "BLIS Typed API": bli_info_get_version_str, bli_arch_query_id, bli_arch_string;
          "Multithreading".
"""

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import anything, not_valid, steering, whole
from mlbackends.libraries.blas_symbols import require_product
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact("architecture", str, "The processor whose kernels it uses, in its own words."),
    Fact("threading", str, "Where its threads come from: serial, pthreads or openmp."),
    Fact("threads", int, "The number of threads that it would use."),
    Fact("integer_bits", int, "The width of the integers that its BLAS functions take."),
    Fact("environment", dict[str, str], "The variables that steer BLIS and are set."),
)

HOMES = ("BLIS_HOME", "BLIS_ROOT", "AOCL_ROOT")
_STEMS = ("libblis", "libblis-mt", "libblis64", "libblis_mt", "AOCL-LibBlis-Win-MT-dll")
VARIABLES = {
    "BLIS_NUM_THREADS": whole(1),
    **{f"BLIS_{loop}_NT": whole(1) for loop in ("JC", "PC", "IC", "JR", "IR")},
    "BLIS_THREAD_IMPL": anything,
    "BLIS_ARCH_TYPE": anything,
    "BLIS_ARCH_DEBUG": anything,
}


def find(host: Host) -> Finding:
    """Look for every copy."""
    near = f"/usr/lib/{host.machine}-linux-gnu/blis"
    folders = tuple(f"{near}-{kind}" for kind in ("pthread", "openmp", "serial"))
    libraries = libraries_named(host, "blis", *_STEMS, homes=HOMES, folders=folders)
    facts = steering(host, VARIABLES)
    if not libraries:
        return Finding(facts=facts, reasons=(absent(host, "libblis", HOMES),))
    return Finding(libraries=tuple(libraries), facts=facts, warnings=not_valid(host, VARIABLES))


def load(opened: CDLL, library: Library) -> Answer:
    """Ask how it was built and which kernels it chose."""
    facts: dict[str, FactValue] = {}
    version = opened.bli_info_get_version_str
    version.restype = ctypes.c_char_p
    told = (version() or b"").decode(errors="replace").strip()
    if hasattr(opened, "bli_arch_query_id") and hasattr(opened, "bli_arch_string"):
        opened.bli_arch_string.restype = ctypes.c_char_p
        opened.bli_arch_string.argtypes = [ctypes.c_int]
        if name := opened.bli_arch_string(opened.bli_arch_query_id()):
            facts["architecture"] = name.decode(errors="replace")
    facts.update(_threads(opened))
    if hasattr(opened, "bli_info_get_blas_int_type_size"):
        size = opened.bli_info_get_blas_int_type_size
        size.restype = ctypes.c_int64
        if size() in (32, 64):
            facts["integer_bits"] = int(size())
    return Answer(replace(library, version=told or library.version), facts=facts)


def _threads(opened: CDLL) -> dict[str, FactValue]:
    told: dict[str, FactValue] = {}
    for kind in ("openmp", "pthreads"):
        ask = getattr(opened, f"bli_info_get_enable_{kind}", None)
        if ask is None:
            continue
        ask.restype = ctypes.c_int64
        told.setdefault("threading", "serial")
        if ask():
            told["threading"] = kind
            break
    if hasattr(opened, "bli_thread_get_num_threads"):
        opened.bli_thread_get_num_threads.restype = ctypes.c_int64
        # -1 is "not set", which is one thread.
        told["threads"] = max(1, int(opened.bli_thread_get_num_threads()))
    return told


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices, where it has BLAS's names."""
    if not hasattr(opened, "dgemm_"):
        message = "it was built without BLAS's function names, so nothing was computed"
        raise NotUsable("no-use-check", message)
    require_product(opened)
    return Answer(library)

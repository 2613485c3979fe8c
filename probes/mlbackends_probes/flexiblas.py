"""FlexiBLAS: a BLAS and LAPACK that passes every call on to another one.

Finds:    every libflexiblas, and the file that chooses its backend.
Usable:   dgemm multiplies two matrices right, with the backend that is in effect.
Caveats:  the backend is chosen when it is opened: by FLEXIBLAS, the user's file or the system's.
Source:   FlexiBLAS manual: flexiblas_get_version, flexiblas_list, flexiblas_current_backend.
"""

import re

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import anything, steering
from mlbackends.libraries.blas_symbols import require_product
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact(
        "default_backend", str, "The backend that the configuration names; FLEXIBLAS overrides it."
    ),
    Fact("backend", str, "The backend that is in effect, in its own words."),
    Fact("backends", list[str], "The backends that the configuration knows."),
    Fact("environment", dict[str, str], "The variables that steer FlexiBLAS and are set."),
)

HOMES = ("FLEXIBLAS_ROOT",)
VARIABLES = dict.fromkeys(
    ("FLEXIBLAS", "FLEXIBLAS_CONFIG", "FLEXIBLAS_HOOK", "FLEXIBLAS_VERBOSE"), anything
)
_MOST = 64


def find(host: Host) -> Finding:
    """Look for every copy, and for the backend that is set."""
    libraries = libraries_named(host, "flexiblas", "libflexiblas", "libflexiblas64", homes=HOMES)
    facts = steering(host, VARIABLES)
    if not libraries:
        return Finding(facts=facts, reasons=(absent(host, "libflexiblas", HOMES),))
    # The later file goes before the earlier one.
    for path in ("/etc/flexiblasrc", f"{host.env('HOME')}/.flexiblasrc"):
        if chosen := re.findall(r"^\s*default\s*=\s*(\S+)", host.read(path, 65536), re.MULTILINE):
            facts["default_backend"] = chosen[-1]
    return Finding(libraries=tuple(libraries), facts=facts)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, and for the backend that it chose."""
    numbers = [ctypes.c_int(-1) for _ in range(3)]
    opened.flexiblas_get_version.restype = None
    opened.flexiblas_get_version(*map(ctypes.byref, numbers))
    if all(number.value >= 0 for number in numbers):
        library = replace(library, version=".".join(str(number.value) for number in numbers))
    facts: dict[str, FactValue] = {}
    name = ctypes.create_string_buffer(1024)
    current = opened.flexiblas_current_backend
    current.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    if current(name, len(name)) > 0 and name.value:
        facts["backend"] = name.value.decode(errors="replace")
    if hasattr(opened, "flexiblas_list"):
        each = opened.flexiblas_list
        each.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_ssize_t]
        known = []
        for i in range(min(each(None, 0, 0), _MOST)):
            each(name, len(name), i)
            known.append(name.value.decode(errors="replace"))
        # A stand-in of its own, which its command line tool leaves out too.
        if known := [one for one in known if one and one != "__FALLBACK__"]:
            facts["backends"] = known
    return Answer(library, facts=facts)


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices."""
    require_product(opened)
    return Answer(library)

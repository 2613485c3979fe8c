"""FlexiBLAS: a BLAS and LAPACK that passes every call on to another one.

Finds:    every libflexiblas, and the file that chooses its backend.
Usable:   dgemm multiplies two matrices right, with the backend that is in effect.
Caveats:  the backend is chosen when it is opened: by FLEXIBLAS, the user's file or the system's.
Source:   FlexiBLAS manual: flexiblas_get_version, flexiblas_list, flexiblas_current_backend.
"""

import re

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.libraries.blas_symbols import require_product
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, FactValue, Finding, Library, nonempty

LIBRARY = SharedLibrary(
    "flexiblas",
    ("libflexiblas", "libflexiblas64"),
    homes=("FLEXIBLAS_ROOT",),
)
BACKENDS_LIMIT = 64


def find(host: Host) -> Finding:
    """Look for every copy, and for the backend that is set."""
    finding = LIBRARY.find(host)
    facts = {**finding.facts}
    # The later file goes before the earlier one.
    for path in (
        ("/etc/flexiblasrc", f"{host.env('HOME')}/.flexiblasrc") if finding.libraries else ()
    ):
        if chosen := re.findall(r"^\s*default\s*=\s*(\S+)", host.read(path, 65536), re.MULTILINE):
            facts["default_backend"] = chosen[-1]
    return replace(finding, facts=facts)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version, and for the backend that it chose."""
    numbers = [ctypes.c_int(-1) for _ in range(3)]
    opened.flexiblas_get_version(*map(ctypes.byref, numbers))
    if all(number.value >= 0 for number in numbers):
        library = replace(library, version=".".join(str(number.value) for number in numbers))
    name = ctypes.create_string_buffer(1024)
    size = ctypes.c_size_t(len(name))
    facts: dict[str, FactValue] = {}
    if opened.flexiblas_current_backend(name, size) > 0:
        facts["backend"] = name.value.decode(errors="replace")
    if hasattr(opened, "flexiblas_list"):
        backends = []
        count = opened.flexiblas_list(None, ctypes.c_size_t(0), ctypes.c_ssize_t(0))
        for i in range(min(count, BACKENDS_LIMIT)):
            opened.flexiblas_list(name, size, ctypes.c_ssize_t(i))
            backends.append(name.value.decode(errors="replace"))
        # __FALLBACK__ is its own, and left out by its command line tool too.
        facts["backends"] = [
            backend for backend in backends if backend and backend != "__FALLBACK__"
        ]
    return Answer(library, facts=nonempty(facts))


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices."""
    require_product(opened)
    return Answer(library)

"""TBB: oneAPI Threading Building Blocks, threads for C++ programs.

Finds:    every libtbb, in the interpreter's prefix, wheels, conda, TBBROOT and the loader's cache.
Usable:   not tried: its parallel algorithms are C++ templates, in the programs and not in the file.
Caveats:  before oneTBB (2021) the version is an interface number alone.
Source:   oneTBB specification: TBB_runtime_version, TBB_runtime_interface_version.
"""

from msgspec.structs import replace

from mlbackends.libraries.c_calls import CDLL, Calls
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Answer, FactValue, Library

LIBRARY = SharedLibrary(
    "tbb",
    ("libtbb",),
    homes=("TBBROOT", "TBB_ROOT"),
    folders=(
        *("/opt/intel/oneapi/tbb/latest/lib", "/opt/intel/oneapi/tbb/latest/lib/intel64/gcc4.8"),
        "$TBBROOT/lib/intel64/gcc4.8",
    ),
)
find = LIBRARY.find


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version."""
    facts: dict[str, FactValue] = {"interface_version": int(opened.TBB_runtime_interface_version())}
    if hasattr(opened, "TBB_runtime_version"):
        version = Calls(opened).text("TBB_runtime_version")
        library = replace(library, version=version or library.version)
    return Answer(library, facts=facts)

"""TBB: oneAPI Threading Building Blocks, threads for C++ programs.

Finds:    every libtbb, in the interpreter's prefix, wheels, conda, TBBROOT and the loader's cache.
Usable:   not tried: its parallel algorithms are C++ templates, in the programs and not in the file.
Caveats:  before oneTBB (2021) the version is told as an interface number alone.
Source:   oneTBB specification: TBB_runtime_version, TBB_runtime_interface_version.
"""

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import anything, steering
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.search import absent, libraries_named
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact(
        "interface_version", int, "The number of the interface, such as 12110 for oneTBB 2021.11."
    ),
    Fact("environment", dict[str, str], "The variables that steer TBB and are set."),
)

HOMES = ("TBBROOT", "TBB_ROOT")
VARIABLES = {"TBB_VERSION": anything, "TBB_MALLOC_USE_HUGE_PAGES": anything}


def find(host: Host) -> Finding:
    """Look for every copy."""
    folders = [
        "/opt/intel/oneapi/tbb/latest/lib",
        "/opt/intel/oneapi/tbb/latest/lib/intel64/gcc4.8",
    ]
    if root := host.env("TBBROOT").rstrip("/"):
        folders.append(f"{root}/lib/intel64/gcc4.8")
    libraries = libraries_named(host, "tbb", "libtbb", "tbb12", "tbb", homes=HOMES, folders=folders)
    facts = steering(host, VARIABLES)
    if not libraries:
        return Finding(facts=facts, reasons=(absent(host, "libtbb", HOMES, folders[:1]),))
    return Finding(libraries=tuple(libraries), facts=facts)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for the version."""
    facts: dict[str, FactValue] = {"interface_version": int(opened.TBB_runtime_interface_version())}
    if hasattr(opened, "TBB_runtime_version"):
        opened.TBB_runtime_version.restype = ctypes.c_char_p
        if told := opened.TBB_runtime_version():
            library = replace(library, version=told.decode(errors="replace"))
    return Answer(library, facts=facts)

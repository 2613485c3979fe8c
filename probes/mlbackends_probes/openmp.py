"""OpenMP: the runtimes that give programs their threads.

Finds:    every libgomp (GNU), libiomp5 (Intel), libomp (LLVM) and vcomp (Microsoft), with those
          that wheels bring under names of their own.
Usable:   a parallel region of two threads runs, and each has its own number.
Caveats:  two runtimes, or two copies of one, in a process have each their own threads: limits that
          are set in one do not hold in the other, and LLVM's and Intel's may deadlock. libgomp
          has no version; its highest symbol version is told. LLVM's reports 5.0.20140926 always.
Source:   OpenMP API 5.2; GNU libgomp manual, "The libgomp ABI"; LLVM OpenMP runtime, kmp.h.
"""

import os
import re
import sys
from collections.abc import Callable

from msgspec.structs import replace

from mlbackends.host.host import Host
from mlbackends.host.variables import anything, matching, one_of, whole, whole_list
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.dependents import needed_of_the_system
from mlbackends.libraries.elf import NotElf, extract, extract_symbols, read_elf, version_definitions
from mlbackends.libraries.search import stem_of
from mlbackends.libraries.shared_library import SharedLibrary
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Fact, FactValue, Finding, Library

GROUP = "library"
FACTS = (
    Fact("runtime", str, "Whose runtime it is: gnu, intel, llvm or microsoft."),
    Fact("symbol_version", str, "The highest symbol version of a GNU runtime, such as GOMP_5.1."),
    Fact(
        "gcc_interface",
        str,
        "The first GCC release with that symbol version; vendors also build it into older ones.",
    ),
    Fact("specification_date", int, "The value of _OPENMP, such as 201511 for OpenMP 4.5."),
    Fact("meeting", list[str], "The copies that are in one process, or will be, by their paths."),
    Fact("max_threads", int, "The number of threads that a parallel region would get."),
    Fact("processors", int, "The number of processors that the runtime sees."),
    Fact("environment", dict[str, str], "The variables that steer OpenMP and are set."),
)

_OUTSIDE = ("LD_LIBRARY_PATH", "conda", "python-prefix", "ld.so.cache", "system-folder")
_GCC = {
    "GOMP_1.0": "4.2",
    "GOMP_2.0": "4.4",
    "GOMP_3.0": "4.7",
    "GOMP_4.0": "4.9",
    "GOMP_4.0.1": "5",
    "GOMP_4.5": "6",
    "GOMP_5.0": "9",
    "GOMP_5.0.1": "11",
    "GOMP_5.1": "12",
    "GOMP_5.1.1": "13",
}
_MAKERS = {"vcomp": "microsoft", "libiomp5": "intel", "libomp": "llvm"}
"""Beginning of a file's name -> whose runtime it is."""

_TRUTH = one_of("true", "false", "1", "0", "yes", "no", "on", "off")
_BINDING = r"true|false|(primary|master|close|spread)(\s*,\s*(primary|master|close|spread))*"
_PLACES = r"(threads|cores|sockets|ll_caches|numa_domains)(\s*\(\s*\d+.*\))?|!?\s*\{.*"
_SCHEDULE = r"((non)?monotonic\s*:\s*)?(static|dynamic|guided|auto)(\s*,\s*\d+)?"
_BLOCK_TIME = r"\d+\s*(us|ms|s)?|infinite|infinity|inf"
LIBRARY = SharedLibrary(
    "openmp",
    ("libgomp", "libiomp5", "libomp", "libomp5", "libiomp5md", "vcomp140", "vcomp"),
    folders=("/opt/homebrew/opt/libomp/lib", "/usr/local/opt/libomp/lib"),
    variables={
        "OMP_NUM_THREADS": whole_list(1),
        "OMP_PROC_BIND": matching(_BINDING, "true, false, or primary, close, spread in a list"),
        "OMP_PLACES": matching(
            _PLACES, "threads, cores, sockets, ll_caches, numa_domains or {...}"
        ),
        "OMP_SCHEDULE": matching(
            _SCHEDULE, "static, dynamic, guided or auto, and a chunk after a comma"
        ),
        "OMP_DYNAMIC": matching("true|false|1|0|yes|no|on|off", "true or false"),
        "OMP_THREAD_LIMIT": whole(1),
        "OMP_MAX_ACTIVE_LEVELS": whole(),
        "OMP_WAIT_POLICY": one_of("active", "passive"),
        "OMP_STACKSIZE": matching(r"\d+\s*[bkmgt]?", "a number, and B, K, M or G after it"),
        "OMP_DISPLAY_ENV": one_of("true", "false", "verbose", "1", "0", "yes", "no", "on", "off"),
        "OMP_TARGET_OFFLOAD": one_of("mandatory", "disabled", "default"),
        **dict.fromkeys(
            ("GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "GOMP_STACKSIZE", "KMP_AFFINITY"), anything
        ),
        "KMP_BLOCKTIME": matching(_BLOCK_TIME, "milliseconds, or infinite"),
        "KMP_DUPLICATE_LIB_OK": _TRUTH,
        "KMP_HW_SUBSET": anything,
        "KMP_INIT_AT_FORK": _TRUTH,
        "KMP_LIBRARY": one_of("throughput", "turnaround", "serial"),
        "KMP_SETTINGS": _TRUTH,
        "KMP_STACKSIZE": anything,
    },
    missing="libgomp, libiomp5 or libomp",
)


def find(host: Host) -> Finding:
    """Look for every runtime, and for those that would meet in one process."""
    found = LIBRARY.find(host, describe=_recognised)
    if not found.libraries:
        return found
    facts, warnings = {**found.facts}, [*found.warnings]
    first = host.env("OMP_NUM_THREADS").split(",")[0].strip()
    allowed = host.affinity()
    if not whole(1)(first) and allowed and int(first) > len(allowed):
        message = (
            f"OMP_NUM_THREADS is {first}, and this process may run on {len(allowed)} processors"
        )
        warnings.append(Reason("override-exceeds-hardware", message))
    meeting, seen = _meeting(host, found.libraries)
    if meeting:
        facts["meeting"] = list[object](library.path for library in meeting)
        warnings.append(_conflict(meeting, seen))
    return replace(found, facts=facts, warnings=tuple(warnings))


def _recognised(host: Host, library: Library) -> Library:
    """Add whose runtime a copy is: by its functions, since one maker's may bear another's name."""
    stem = stem_of(os.path.basename(library.soname)) or stem_of(os.path.basename(library.path))
    maker = next((maker for begin, maker in _MAKERS.items() if stem.startswith(begin)), "")
    facts: dict[str, FactValue] = {"runtime": maker} if maker else {}
    if host.platform == "linux" and not library.reasons:
        try:
            names = ("__kmpc_fork_call", "GOMP_parallel", "GOMP_barrier")
            defined = extract_symbols(host, library.path, names)
            if defined and "__kmpc_fork_call" not in defined:
                facts["runtime"] = "gnu"
                facts.update(_gnu_version(extract(host, library.path, version_definitions)))
        except (NotElf, OSError):
            pass
    return replace(library, facts=facts) if facts else library


def _gnu_version(definitions: tuple[str, ...]) -> dict[str, FactValue]:
    versions = [name for name in definitions if re.fullmatch(r"GOMP_\d+(\.\d+)*", name)]
    if not versions:
        return {}
    highest = max(versions, key=lambda name: [int(part) for part in name[5:].split(".")])
    gcc = {"gcc_interface": _GCC[highest]} if highest in _GCC else {}
    return {"symbol_version": highest, **gcc}


def _meeting(host: Host, libraries: tuple[Library, ...]) -> tuple[list[Library], str]:
    """Return the different copies that are, or would be, in one process, and how that was seen."""
    if host.pid is not None:
        mapped = [library for library in libraries if library.used is True]
        if len(mapped) <= 1:
            return [], ""
        which = " and ".join(library.path for library in mapped)
        return mapped, f"process {host.pid} has mapped {which}"
    brought: dict[str, Library] = {}
    for library in libraries:
        in_a_wheel = library.found_by == "site-packages" and library.owner and not library.reasons
        if in_a_wheel and _is_needed(host, library):
            # The loader takes a second file of the same soname for the first one.
            brought.setdefault(library.soname, library)
    copies, packages, seen = [], [], []
    for library in brought.values():
        copies.append(library)
        packages.append(library.owner.split(" ")[0])
        seen.append(f"{packages[-1]} brings {os.path.basename(library.path)}")
    # Copies outside of wheels that a wheel's file needs. Whoever needs a soname that a wheel brings
    # may get that wheel's copy: those share one.
    outside = {
        library.soname: library
        for library in libraries
        if library.wins and library.found_by in _OUTSIDE and library.soname not in brought
    }
    if brought and outside and host.platform == "linux":
        for soname, needing in needed_of_the_system(host, frozenset(outside)).items():
            copies.append(outside[soname])
            packages.append(needing[0])
            seen.append(f"{needing[0]} takes {outside[soname].path}")
    if len(set(packages)) <= 1:
        return [], ""
    return copies, f"{' and '.join(seen)}; both are in a process that imports both"


def _is_needed(host: Host, library: Library) -> bool:
    """Tell whether the package's own libraries ask for the copy that it brings.

    auditwheel puts into NAME.libs what an extension module needs, and only that. torch/lib is
    filled by hand, so its main library is asked.
    """
    folder, name = os.path.split(library.path)
    if folder.endswith(".libs"):
        return True
    try:
        return name in extract(host, f"{folder}/libtorch_cpu.so", read_elf).needed
    except (NotElf, OSError):
        return False


def _conflict(copies: list[Library], seen: str) -> Reason:
    kinds = {str(library.facts.get("runtime", "")) for library in copies}
    if len(kinds) == 1:
        message = (
            f"{seen}: each copy has threads of its own, and a limit set in one is not the other's"
        )
    else:
        message = f"{seen}: these runtimes are of different makers ({', '.join(sorted(kinds))})"
    hint = "set OMP_NUM_THREADS, which all of them read, rather than calling one"
    if kinds == {"intel", "llvm"}:
        hint = "install both packages from one source, so that they share a runtime"
    return Reason("conflict", message, hint)


def load(opened: CDLL, library: Library) -> Answer:
    """Ask for its version and what it sees of the machine."""
    facts: dict[str, FactValue] = {**library.facts}
    if hasattr(opened, "__kmpc_fork_call"):  # LLVM's or Intel's
        os.environ["KMP_VERSION"] = "1"  # read, and answered on stderr, at the first call
    printed = _printed(opened.omp_get_max_threads)
    for fact, function in (
        ("max_threads", opened.omp_get_max_threads),
        ("processors", opened.omp_get_num_procs),
    ):
        if (number := int(function())) > 0:
            facts[fact] = number
    if hasattr(opened, "omp_display_env"):
        printed += _printed(lambda: opened.omp_display_env(0))
    if date := re.search(r"_OPENMP\s*=\s*'(\d{6})'|API version:.*\((\d{6})\)", printed):
        facts["specification_date"] = int(date[1] or date[2])
    version = re.search(r"Intel\(R\) OMP version: (\d+\.\d+\.\d{8})", printed)
    if version and not version[1].endswith("20140926"):
        library = replace(library, version=version[1])
    return Answer(library, facts=facts)


def _printed(call: Callable[[], object]) -> str:
    """Return what a call writes to stderr, 64 KiB of it at most, which is what a pipe holds."""
    reading, writing = os.pipe()
    before = os.dup(2)
    os.set_blocking(writing, False)
    os.set_blocking(reading, False)
    os.dup2(writing, 2)
    try:
        call()
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(writing)
    try:
        return os.read(reading, 65536).decode(errors="replace")
    except BlockingIOError:
        return ""
    finally:
        os.close(reading)


def use(opened: CDLL, library: Library) -> Answer:
    """Run a parallel region, which compilers make of a function and a call of the runtime."""
    seen: list[tuple[int, int]] = []

    def body(*_: object) -> None:
        seen.append((opened.omp_get_thread_num(), opened.omp_get_num_threads()))

    if sys.platform == "win32":
        raise NotUsable("no-use-check", "no check here starts a parallel region on Windows")
    if hasattr(opened, "__kmpc_fork_call"):

        class Place(ctypes.Structure):
            """The ident_t that says where in the source a region is."""

            _fields_ = (("numbers", ctypes.c_int32 * 4), ("source", ctypes.c_char_p))

        numbers = (ctypes.c_int32 * 4)(0, 2, 0, 0)
        place = ctypes.byref(Place(numbers, b";unknown;unknown;0;0;;"))
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(body)
        number, limit, fork = (
            getattr(opened, f"__kmpc_{name}")
            for name in ("global_thread_num", "push_num_threads", "fork_call")
        )
        limit(place, number(place), 2)
        fork(place, 0, region)
    else:
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)
        opened.GOMP_parallel(region, None, 2, 0)
    threads = len(seen)
    # Fewer than two are right where OMP_THREAD_LIMIT or OMP_DYNAMIC asks for it.
    if not seen or sorted(seen) != [(number, threads) for number in range(threads)]:
        message = f"a parallel region of two threads ran as (number, of how many) {sorted(seen)}"
        raise NotUsable("wrong-result", message)
    return Answer(library)

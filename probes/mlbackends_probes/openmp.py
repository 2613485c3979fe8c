"""OpenMP: the runtimes that give programs their threads.

Finds:    every libgomp (GNU), libiomp5 (Intel), libomp (LLVM) and vcomp (Microsoft), including those in
          wheels under other names.
Usable:   a parallel region of two threads runs, and each has its own number.
Caveats:  two runtimes, or two copies of one, in a process have separate threads: limits set in one do not
          apply to the other, and LLVM's and Intel's may deadlock. libgomp has no version; its highest
          symbol version is reported. LLVM's always reports 5.0.20140926.
Source:   OpenMP API 5.2; GNU libgomp manual, "The libgomp ABI"; LLVM OpenMP runtime, kmp.h.
"""

import contextlib
import os
import re
from collections.abc import Callable
from threading import Thread

from msgspec.structs import replace

from mlbackends.base.errors import NotALibrary
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.base.tables import table
from mlbackends.host.declared import valid_instead
from mlbackends.host.host import Host
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.libraries.c_runtime import highest
from mlbackends.libraries.consumers import needed_of_the_system
from mlbackends.libraries.library_names import stem_of
from mlbackends.libraries.search import SharedLibrary
from mlbackends.libraries.symbols import extract_symbols, symbol_versions
from mlbackends.model.records import Answer, Finding, Library, nonempty

_OUTSIDE = ("LD_LIBRARY_PATH", "conda", "python-prefix", "ld.so.cache", "system-folder")
#: Beginning of a file's name -> the runtime's maker.
_MAKERS = {
    "vcomp": "microsoft", "libiomp5": "intel", "libomp": "llvm", "libgomp-1": "gnu",
}  # fmt: skip


def _described(host: Host, library: Library) -> Library:
    """Add the maker of a copy, by its functions, since one maker's may have another's name."""
    stem = stem_of(os.path.basename(library.soname)) or stem_of(os.path.basename(library.path))
    maker = next((maker for begin, maker in _MAKERS.items() if stem.startswith(begin)), "")
    facts = {"runtime": maker}
    if host.platform == "linux" and not library.reasons:
        with contextlib.suppress(NotALibrary, OSError):
            names = ("__kmpc_fork_call", "GOMP_parallel", "GOMP_barrier")
            defined = extract_symbols(host, library.path, names)
            if defined and "__kmpc_fork_call" not in defined:
                facts["runtime"] = "gnu"
                definitions = symbol_versions(host, library.path)
                number = highest(definitions, "GOMP_")
                version = f"GOMP_{number}" if number else ""
                facts["symbol_version"] = version
                facts["gcc_interface"] = table("libraries/openmp")["gcc"].get(version, "")
    return replace(library, facts=nonempty(facts))


_ONE_COPY = "install both packages from one channel of conda, or both with pip"


LIBRARY = SharedLibrary(
    "openmp",
    ("libgomp", "libiomp5", "libomp", "libomp5", "vcomp"),
    wheels=("sklearn/.libs",),
    folders=("/opt/homebrew/opt/libomp*/lib", "/usr/local/opt/libomp*/lib"),
    missing="libgomp, libiomp5 or libomp",
    describe=_described,
)


def find(host: Host) -> Finding:
    """Look for every runtime, and for those that would be loaded into one process."""
    finding = LIBRARY.find(host)
    if not finding.libraries:
        return finding
    facts, warnings = {**finding.facts}, [*finding.warnings]
    first = host.env("OMP_NUM_THREADS").split(",")[0].strip()
    allowed = host.affinity()
    if first and allowed and not valid_instead(first, {"minimum": len(allowed) + 1}):
        message = (
            f"OMP_NUM_THREADS is {first}, and this process may use only"
            f" {len(allowed)} CPU{'' if len(allowed) == 1 else 's'}"
        )
        warnings.append(Reason("override-exceeds-hardware", message))
    copies, evidence = _copies_in_one_process(host, finding.libraries)
    if copies:
        facts["conflicting_copies"] = [library.path for library in copies]
        kinds = {str(library.facts.get("runtime", "")) for library in copies}
        why = f"these runtimes are of different makers ({', '.join(sorted(kinds))})"
        if len(kinds) == 1:
            why = "each copy has separate threads, and a limit set in one does not apply to the other"
        hint = "set OMP_NUM_THREADS, which all runtimes read; omp_set_num_threads reaches one"
        own = [copy for copy in copies if copy.facts.get("runtime") in ("intel", "llvm")]
        if host.platform == "win32" and len(own) > 1:
            why = "the second of Intel's or LLVM's that starts ends the process (OMP: Error #15)"
            hint = _ONE_COPY
            if any(copy.used_by[:1] == ("torch",) for copy in own) and host.pid is None:
                why += "; torch opens its own by its path, the others use what is loaded by then"
                hint = f"import torch first, so that the others use its copy; or {_ONE_COPY}"
        if kinds == {"intel", "llvm"}:
            hint = "install both packages from one source, so that they share a runtime"
        warnings.append(Reason("conflict", f"{evidence}: {why}", hint))
    return replace(finding, facts=facts, warnings=tuple(warnings))


def _copies_in_one_process(host: Host, libraries: tuple[Library, ...]) -> tuple[list[Library], str]:
    """Return the different copies that are, or would be, in one process, and how that was seen."""
    if host.pid is not None:
        mapped = [library for library in libraries if library.used is True]
        if len(mapped) <= 1:
            return [], ""
        paths = " and ".join(library.path for library in mapped)
        return mapped, f"process {host.pid} has mapped {paths}"
    brought: dict[str, Library] = {}
    is_windows = host.platform == "win32"
    for library in libraries:
        is_brought = is_windows or library.found_by == "site-packages"
        if is_brought and library.used_by and not library.reasons:
            # The loader takes a second file of the same soname for the first one; that of Windows does
            # not where a package opens its own by the path, as torch and scikit-learn do.
            brought.setdefault(library.path if is_windows else library.soname, library)
    copies, packages, pairs = [], [], []
    for library in brought.values():
        copies.append(library)
        packages.append(library.used_by[0])
        name = library.path if is_windows else os.path.basename(library.path)
        pairs.append(f"{packages[-1]} includes {name}")
    # Copies outside of wheels that a wheel's file needs. Whoever needs a soname that a wheel brings
    # may get that wheel's copy: those share one.
    first = {library.soname: library for library in reversed(libraries) if not library.reasons}
    outside = {
        soname: library
        for soname, library in first.items()
        if library.found_by in _OUTSIDE and soname not in brought
    }
    if brought and outside and host.platform == "linux":
        for soname, needing in needed_of_the_system(host, frozenset(outside)).items():
            copies.append(outside[soname])
            packages.append(needing[0])
            pairs.append(f"{needing[0]} uses {outside[soname].path}")
    if len(set(packages)) <= 1:
        return [], ""
    return copies, f"{' and '.join(pairs)}; both are in a process that imports both"


def load(opened: CDLL, library: Library) -> Answer:
    """Return its version, and its view of the machine."""
    if hasattr(opened, "__kmpc_fork_call"):  # LLVM's or Intel's
        os.environ["KMP_VERSION"] = "1"  # read, and answered on stderr, at the first call
    printed = _printed(opened.omp_get_max_threads)
    threads, processors = int(opened.omp_get_max_threads()), int(opened.omp_get_num_procs())
    if hasattr(opened, "omp_display_env"):
        printed += _printed(lambda: opened.omp_display_env(0))
    date = re.search(r"_OPENMP\s*=\s*'(\d{6})'|API version:.*\((\d{6})\)", printed)
    version = re.search(r"Intel\(R\) OMP version: (\d+\.\d+\.\d{8})", printed)
    if version and not version[1].endswith("20140926"):
        library = replace(library, version=version[1])
    facts = {
        **library.facts,
        "max_threads": threads if threads > 0 else None,
        "processors": processors if processors > 0 else None,
        "specification_date": int(date[1] or date[2]) if date else None,
    }
    return Answer(library, facts=nonempty(facts))


def _printed(call: Callable[[], object]) -> str:
    """Return what a call writes to stderr."""
    reading, writing = os.pipe()
    pieces: list[bytes] = []

    def read() -> None:
        while piece := os.read(reading, 65536):
            pieces.append(piece)

    before, reader = os.dup(2), Thread(target=read, daemon=True)
    reader.start()
    os.dup2(writing, 2)
    try:
        call()
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(writing)
    reader.join(1)  # what the library started may still hold the pipe
    return b"".join(pieces).decode(errors="replace")


def use(opened: CDLL, library: Library) -> Answer:
    """Run a parallel region, which compilers make of a function and a call of the runtime."""
    pairs: list[tuple[int, int]] = []

    def body(*_: object) -> None:
        pairs.append((opened.omp_get_thread_num(), opened.omp_get_num_threads()))

    if hasattr(opened, "__kmpc_fork_call"):

        class Place(ctypes.Structure):
            """The ident_t, the place of a region in the source."""

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
    elif hasattr(opened, "_vcomp_fork"):
        opened._vcomp_set_num_threads(2)  # noqa: SLF001  so Microsoft names it
        opened._vcomp_fork(1, 0, ctypes.CFUNCTYPE(None)(body))  # noqa: SLF001
    else:
        region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)
        opened.GOMP_parallel(region, None, 2, 0)
    threads = len(pairs)
    # Fewer than two are right if OMP_THREAD_LIMIT or OMP_DYNAMIC demands it.
    if not pairs or sorted(pairs) != [(number, threads) for number in range(threads)]:
        message = f"a parallel region of two threads ran as (number, of how many) {sorted(pairs)}"
        raise NotUsable("wrong-result", message)
    return Answer(library)

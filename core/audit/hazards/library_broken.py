"""The name of a library leads to a file that no process can open.

Told by:   every probe's libraries: links to nothing, files for another processor, files that are none.
No alarm:  a linker script without a version in its name; a bad file that the loader passes over for a
           good one.
Severity:  an error in a wheel, and for a file that ends the loader's search; a note for what lies in the
           system's folders, where it may be a leftover.
"""

import re
from collections.abc import Iterator

from mlbackends.audit.copies import kept_by_torch, package_of
from mlbackends.audit.hazard import Symptom
from mlbackends.audit.installing import reinstall, without_folder
from mlbackends.audit.known import Known, NotTold
from mlbackends.model.audit import Severity
from mlbackends.model.records import Library

SEVERITY = Severity.WARNING
READS = ()
WHY = "What needs it does not start, and the loader's message seldom says that the file is the trouble."
MEND = "Install the package again that the file belongs to, or remove what is left of it."
SOURCES = ("ld.so(8)", "pytorch/pytorch#188892")

_CODES = ("dangling-link", "wrong-architecture", "not-a-library", "missing-dependency")
_RUNTIME_NAME = re.compile(r"\.so\.\d|-[0-9a-f]{6,40}\.so|\.dylib$|\.dll$|\.libs/")
"""What is opened when a program runs; libX.so alone is for linking, and may be a script."""
_OF_THE_SYSTEM = frozenset({"ld.so.cache", "system-folder", "well-known-folder"})
_EVERYWHERE = ("openmp", "blas", "openblas", "cudnn")
_SEARCHED = ("LD_LIBRARY_PATH", "LD_PRELOAD")


def symptoms(known: Known) -> Iterator[Symptom]:
    """Yield one for each file that a process would take, or that ends its search."""
    if not any(name in known.report.probes for name in _EVERYWHERE):
        raise NotTold("the report has no library")
    told: set[str] = set()
    for name in known.report.probes:
        copies = known.libraries(name)
        good = {one.soname for one in copies if one.wins}
        for library in copies:
            reason = next((one for one in library.reasons if one.code in _CODES), None)
            if reason is None or library.path in told or not _RUNTIME_NAME.search(library.path):
                continue
            # Of a wrong processor and of nothing the loader goes on; a file that is none ends it.
            is_fatal = reason.code == "not-a-library" and library.found_by in _SEARCHED
            is_fatal = is_fatal and not kept_by_torch(known, library.soname)
            if library.soname in good and not is_fatal:
                continue
            told.add(library.path)
            seen = reason.message
            if library.path not in seen:
                seen = f"{library.path}: {seen}"
            if is_fatal:
                seen += "; the loader's search ends there with an error"
            else:
                seen += f"; no other copy of {library.soname} is in order"
            yield Symptom(
                seen,
                command=_command(known, library),
                evidence={f"{name}.libraries": [library.path]},
                severity=_severity(library, is_fatal),
            )


def _severity(library: Library, is_fatal: bool) -> Severity | None:
    if is_fatal or library.found_by == "site-packages":
        return Severity.ERROR
    return Severity.NOTE if library.found_by in _OF_THE_SYSTEM else None


def _command(known: Known, library: Library) -> str:
    if library.found_by == "site-packages" and library.owner:
        return reinstall(known, *package_of(library))
    return without_folder(known, library.found_by, library.path)

"""Which copies of libraries a process would take that could not be opened, and what nobody has opened."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from mlbackends.audit.installing import SEARCH_PATHS
from mlbackends.audit.known import Known
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import UNCERTAIN, Reason
from mlbackends.model.records import Library, Presence

_NOT_OPENED = ("dlopen-failed", "missing-dependency", "missing-symbol", "crashed", "exited")
_NOT_USED = ("crashed", "exited", "wrong-result")
_OF_ONE_PACKAGE = re.compile(r"\.(?:dy)?libs/[^/]+$")
"""Where auditwheel, delocate and delvewheel put what the files of one package need, and name by path."""
_LAST_FOLDERS = ("", "well-known-folder")
_NEEDED = pattern(r"it needs (?P<name>\S+), which the loader does not find")
_OF_A_DRIVER = re.compile(
    r"(?:.*/)?lib(?:cuda|nvidia-[\w-]+|nvcuvid|nvoptix|ze_intel_\w+|hsakmt|drm_\w+|neuron\w*)\.so"
)


class Failed(NamedTuple):
    """A copy that a process would take, whose opening or use failed, and how.

    driver: whether what it lacks comes with a driver, as on a machine without the device.
    """

    probe: str
    library: Library
    reason: Reason
    driver: bool = False


def failed(known: Known) -> Iterator[Failed]:
    """Yield every copy that a process would take and that the child could not open or use."""
    if not is_opened(known):
        return
    in_order = {
        library.soname
        for name in known.report.probes
        for library in known.libraries(name)
        if library.presence.rung > Presence.FOUND.rung
    }
    for name, library in _taken(known):
        is_found = library.presence is Presence.FOUND
        codes = _NOT_OPENED if is_found else _NOT_USED
        for reason in library.reasons:
            if reason.code not in codes:
                continue
            needed = _NEEDED.search(reason.message) if reason.code == "missing-dependency" else None
            # What a package has opened before is found by its soname, wherever it lies.
            if needed is None or needed["name"] not in in_order:
                driver = needed is not None and bool(_OF_A_DRIVER.match(needed["name"]))
                yield Failed(name, library, reason, driver)
                break


def not_opened(known: Known) -> str:
    """Return why it is not known whether what a process would take opens; "" where that is known."""
    taken = [library for _, library in _taken(known) if library.presence is Presence.FOUND]
    if not is_opened(known):
        unread = len({library.path for library in taken if not library.reasons})
        if not unread:
            return ""
        many = "1 library was" if unread == 1 else f"{unread} libraries were"
        return (
            f"the report was made with --depth {known.report.depth}: {many} found and not opened,"
            " and a file's head does not tell whether the rest of it is whole"
        )
    for library in taken:
        for reason in library.reasons:
            if reason.code in UNCERTAIN:
                return f"{library.path}: {reason.message}"
    return ""


def is_opened(known: Known) -> bool:
    """Tell whether the report is of a machine whose libraries were opened."""
    return known.report.depth.rung > Presence.FOUND.rung


def is_of_one_package(library: Library) -> bool:
    """Tell whether a copy is one that the files of its own package load by its path."""
    return library.found_by == "site-packages" and bool(_OF_ONE_PACKAGE.search(library.path))


def _taken(known: Known) -> Iterator[tuple[str, Library]]:
    """Yield each copy that a process gets: the winner of its name, what is built in, a wheel's own."""
    for name in known.report.probes:
        copies = known.libraries(name)
        # Not where the variable's copy wins: the package itself takes that one.
        outdone = {one.soname for one in copies if one.wins and one.found_by in SEARCH_PATHS}
        for library in copies:
            own = is_of_one_package(library) and library.soname not in outdone
            built_in = library.found_by.startswith("inside ")
            if (library.wins or own or built_in) and library.found_by not in _LAST_FOLDERS:
                yield name, library

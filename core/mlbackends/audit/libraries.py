"""Copies of libraries as hazards read them: which one a process gets, which it shadows, which is broken."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from mlbackends.audit.environment import SEARCH_PATHS
from mlbackends.audit.hazard import ReportView
from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import UNCERTAIN, Reason
from mlbackends.model.records import Library, Presence

_CUDNN = "nvidia-cudnn"
#: In `wins_because` of a copy that its package finds before LD_LIBRARY_PATH.
_BY_RPATH = " by RPATH"
_NOT_OPENED = ("dlopen-failed", "missing-dependency", "missing-symbol", "crashed", "exited")
_NOT_USED = ("crashed", "exited", "wrong-result")
#: Where auditwheel, delocate and delvewheel put what the files of one package need, and name by path.
_OF_ONE_PACKAGE = re.compile(r"\.(?:dy)?libs/[^/]+$")
_LAST_FOLDERS = ("", "well-known-folder")
_NEEDED = pattern(r"it needs (?P<name>\S+), which the loader does not find")
_OF_A_DRIVER = re.compile(
    r"(?:^|[\s/])lib(?:cuda|nvidia-[\w-]+|nvcuvid|nvoptix|ze_intel_\w+|hsakmt|drm_\w+|neuron\w*)\.so"
)


class Shadowed(NamedTuple):
    """A probe, its copy that a search path gives a process, and the one of a wheel that it comes before."""

    probe: str
    chosen: Library
    wheel: Library


def shadowed(report: ReportView) -> Iterator[Shadowed]:
    """Yield every library of a wheel that loses against a folder of the loader's search path.

    Two copies of one version are none, no copy that the same package owns, and no library that torch
    finds by itself. A copy that its package finds by RPATH wins, and is none either.
    """
    return (pair for pair in _pairs(report) if not is_opened_by_torch(report, pair.chosen.soname))


def is_opened_by_torch(report: ReportView, soname: str) -> bool:
    """Return whether torch opens its own copy of a library whatever LD_LIBRARY_PATH names.

    What libtorch_cuda itself needs it finds by RPATH, in the folders of wheels. What those libraries
    need in turn they look for by RUNPATH, which comes later.
    """
    return bool(report.fact("torch.own_folders_first") and soname in report.fact("torch.cuda_libraries", []))


def is_opened_by_package(report: ReportView, soname: str) -> bool:
    """Return whether the package that contains a library opens its own copy despite LD_LIBRARY_PATH."""
    return any(
        library.wins and library.soname == soname and _BY_RPATH in library.wins_because
        for name in report.record.probes
        for library in report.libraries(name)
    )


def cudnn_parted(report: ReportView) -> Shadowed | None:
    """Return the libcudnn that torch opens by RPATH, and the other one whose parts it then gets."""
    for pair in _pairs(report):
        is_cudnn = pair.chosen.soname.startswith("libcudnn.so.")
        has_parts = bool(pair.chosen.facts.get("sub_libraries"))
        if is_cudnn and has_parts and is_opened_by_torch(report, pair.chosen.soname):
            return pair
    return None


def _pairs(report: ReportView) -> Iterator[Shadowed]:
    paths: set[str] = set()
    for name in report.record.probes:
        copies = report.libraries(name)
        for chosen in (copy for copy in copies if copy.wins and copy.found_by in SEARCH_PATHS):
            losers = (
                copy
                for copy in copies
                if (copy.soname, copy.found_by, copy.reasons) == (chosen.soname, "site-packages", ())
                and not (copy.owner and copy.owner == chosen.owner)
                and not (copy.version and copy.version == chosen.version)
            )
            wheel = next(losers, None)
            if wheel is not None and chosen.path not in paths:
                paths.add(chosen.path)
                yield Shadowed(name, chosen, wheel)


def older_than_pinned(report: ReportView) -> tuple[Library, dict[str, str]] | None:
    """Return the libcudnn that a process gets and torch's pin, where that copy is older than the pin.

    The package that is pinned may be right, and another copy come first. Patches are not compared:
    torch asks for the minor version alone.
    """
    pins = report.fact("torch.pins", [])
    pin = next((pin for pin in pins if pin.get("package", "").startswith(_CUDNN)), None)
    if pin is None:
        return None
    soname = f"libcudnn.so.{pin['wanted'].split('.')[0]}"
    copies = report.libraries("cudnn")
    library = next((copy for copy in copies if copy.wins and copy.soname == soname), None)
    if library is None or library.owner.startswith(f"{pin['package']} "):
        return None
    if is_opened_by_torch(report, soname) and any(copy.found_by == "site-packages" for copy in copies):
        return None
    have, required = numbers(library.version)[:2], numbers(pin["wanted"])[:2]
    return (library, pin) if have and have < required else None


def numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, () for what is none.

    A package's version may have a fourth number, of its build, which the library does not report.
    """
    parts = [*version.split("+", 1)[0].split("."), "0", "0"][:3]
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()


def package_of(library: Library) -> tuple[str, str]:
    """Return name and version of the package that owns a library, ("", "") where none is known."""
    name, _, version = library.owner.partition(" ")
    return name, version


def described(library: Library) -> str:
    """Return a copy in words: its path, with version and owner in brackets where they are known."""
    about = [part for part in (library.version, library.owner) if part]
    return f"{library.path} ({', '.join(about)})" if about else library.path


def is_of_a_driver(text: str) -> bool:
    """Return whether a text names a library that comes with a driver."""
    return _OF_A_DRIVER.search(text) is not None


class Failed(NamedTuple):
    """A copy that a process would take, whose opening or use failed, and how.

    driver: whether what it lacks comes with a driver, as on a machine without the device.
    """

    probe: str
    library: Library
    reason: Reason
    driver: bool = False


def failed(report: ReportView) -> Iterator[Failed]:
    """Yield every copy that a process would take and that the child could not open or use."""
    if not is_opened(report):
        return
    in_order = {
        library.soname
        for name in report.record.probes
        for library in report.libraries(name)
        if library.presence.level > Presence.FOUND.level
    }
    for name, library in _loaded(report):
        codes = _NOT_OPENED if library.presence is Presence.FOUND else _NOT_USED
        for reason in library.reasons:
            needed = _NEEDED.search(reason.message) if reason.code == "missing-dependency" else None
            # A library that a package opened before is found by its soname, wherever it is.
            if reason.code in codes and not (needed and needed["name"] in in_order):
                driver = needed is not None and is_of_a_driver(needed["name"])
                yield Failed(name, library, reason, driver)
                break


def not_opened(report: ReportView) -> str:
    """Return why it is not known whether what a process would take opens; "" where that is known."""
    # What a process has mapped was opened by it.
    used = [
        library
        for _, library in _loaded(report)
        if library.presence is Presence.FOUND and not isinstance(library.used, bool)
    ]
    if not is_opened(report):
        unread = len({library.path for library in used if not library.reasons})
        if not unread:
            return ""
        many = "1 library was" if unread == 1 else f"{unread} libraries were"
        return (
            f"the report was made with --depth {report.record.depth}: {many} found and not opened,"
            " and a file's head does not show whether the rest is complete"
        )
    unsure = (
        f"{library.path}: {reason.message}"
        for library in used
        for reason in library.reasons
        if reason.code in UNCERTAIN
    )
    return next(unsure, "")


def is_opened(report: ReportView) -> bool:
    """Return whether libraries were opened for this report."""
    return report.record.depth.level > Presence.FOUND.level


def is_of_one_package(library: Library) -> bool:
    """Return whether the files of the copy's package load it by path."""
    return library.found_by == "site-packages" and bool(_OF_ONE_PACKAGE.search(library.path))


def _loaded(report: ReportView) -> Iterator[tuple[str, Library]]:
    """Yield each copy that a process gets: the winner of its name, what is built in, a wheel's own."""
    for name in report.record.probes:
        copies = report.libraries(name)
        # Not where the variable's copy wins: the package itself takes that one.
        outdone = {copy.soname for copy in copies if copy.wins and copy.found_by in SEARCH_PATHS}
        for library in copies:
            own = is_of_one_package(library) and library.soname not in outdone
            built_in = library.found_by.startswith("inside ")
            if (library.wins or own or built_in) and library.found_by not in _LAST_FOLDERS:
                yield name, library

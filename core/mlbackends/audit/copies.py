"""Which copy of a library a process gets, and what it shadows."""

from collections.abc import Iterator
from typing import NamedTuple

from mlbackends.audit.installing import SEARCH_PATHS
from mlbackends.audit.known import Known
from mlbackends.model.records import Library

_CUDNN = "nvidia-cudnn"
_BY_RPATH = " by RPATH"
"""In `wins_because` of a copy that its package finds before LD_LIBRARY_PATH."""


class Shadowed(NamedTuple):
    """A copy that a search path gives a process, and the one of a wheel that it comes before."""

    taken: Library
    wheel: Library


def shadowed(known: Known) -> Iterator[Shadowed]:
    """Yield every library of a wheel that loses against a folder of the loader's search path.

    Two copies of one version are none, no copy that the same package owns, and no library that torch
    finds by itself. A copy that its package finds by RPATH wins, and is none either.
    """
    return (pair for pair in _pairs(known) if not kept_by_torch(known, pair.taken.soname))


def kept_by_torch(known: Known, soname: str) -> bool:
    """Tell whether torch opens its own copy of a library whatever LD_LIBRARY_PATH names.

    What libtorch_cuda itself needs it finds by RPATH, in the folders of wheels. What those libraries
    need in turn they look for by RUNPATH, which comes later.
    """
    return bool(
        known.fact("torch.own_folders_first") and soname in known.fact("torch.cuda_libraries", [])
    )


def kept_by_package(known: Known, soname: str) -> bool:
    """Tell whether the package that brings a library opens its own copy whatever LD_LIBRARY_PATH names."""
    return any(
        one.wins and one.soname == soname and _BY_RPATH in one.wins_because
        for name in known.report.probes
        for one in known.libraries(name)
    )


def cudnn_parted(known: Known) -> Shadowed | None:
    """Return the libcudnn that torch opens by RPATH, and the other one whose parts it then gets."""
    for pair in _pairs(known):
        is_cudnn = pair.taken.soname.startswith("libcudnn.so.")
        has_parts = bool(pair.taken.facts.get("sub_libraries"))
        if is_cudnn and has_parts and kept_by_torch(known, pair.taken.soname):
            return pair
    return None


def _pairs(known: Known) -> Iterator[Shadowed]:
    seen: set[str] = set()
    for name in known.report.probes:
        copies = known.libraries(name)
        for taken in (one for one in copies if one.wins and one.found_by in SEARCH_PATHS):
            wheel = next((one for one in copies if _loses(one, taken)), None)
            if wheel is not None and taken.path not in seen:
                seen.add(taken.path)
                yield Shadowed(taken, wheel)


def _loses(one: Library, taken: Library) -> bool:
    if one.soname != taken.soname or one.found_by != "site-packages" or one.reasons:
        return False
    if one.owner and one.owner == taken.owner:
        return False
    return not (one.version and one.version == taken.version)


def older_than_pinned(known: Known) -> tuple[Library, dict[str, str]] | None:
    """Return the libcudnn that a process gets and torch's pin, where that copy is older than the pin.

    The package that is pinned may be right, and another copy come first.
    """
    pins = known.fact("torch.pins", [])
    pin = next((one for one in pins if one.get("package", "").startswith(_CUDNN)), None)
    if pin is None:
        return None
    major = pin["wanted"].split(".")[0]
    for library in known.libraries("cudnn"):
        if library.wins and library.soname == f"libcudnn.so.{major}":
            from_wheel = any(one.found_by == "site-packages" for one in known.libraries("cudnn"))
            if from_wheel and kept_by_torch(known, library.soname):
                return None
            if library.owner.startswith(f"{pin['package']} "):
                return None
            have, wanted = numbers(library.version), numbers(pin["wanted"])
            return (library, pin) if have and have < wanted else None
    return None


def numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, () for what is none.

    A package's version may have a fourth one, of its build, that the library does not tell.
    """
    parts = version.split("+", 1)[0].split(".")[:3]
    if not all(part.isdecimal() for part in parts):
        return ()
    return (*map(int, parts), *(0 for _ in range(3 - len(parts))))


def package_of(library: Library) -> tuple[str, str]:
    """Return name and version of the package that owns a library, ("", "") where none is known."""
    name, _, version = library.owner.partition(" ")
    return name, version


def described(library: Library) -> str:
    """Return a copy in words: its path, with version and owner in brackets where they are known."""
    about = [part for part in (library.version, library.owner) if part]
    return f"{library.path} ({', '.join(about)})" if about else library.path

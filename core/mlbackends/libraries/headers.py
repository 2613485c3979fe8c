"""What the file of a library says of itself, of a live host or of a recorded one: ELF, PE, Mach-O."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mlbackends.host.host import once_per_host
from mlbackends.libraries.elf import Elf, defined_symbols, read_elf
from mlbackends.libraries.file_image import NotALibrary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mlbackends.host.host import Host
    from mlbackends.libraries.macho import MachO
    from mlbackends.libraries.pe import Pe

_Result = TypeVar("_Result")


def headers(host: Host, path: str) -> Elf | Pe | MachO:
    """Return machine, own name and needed libraries of a file; raises NotALibrary and OSError."""
    if host.platform == "win32":
        return pe_headers(host, path)
    return macho_headers(host, path) if host.platform == "darwin" else elf_headers(host, path)


@once_per_host
def elf_headers(host: Host, path: str) -> Elf:
    """Return the headers of an ELF file; raises as read_elf does."""
    return _extracted(host, path, "read_elf", Elf, read_elf)


@once_per_host
def pe_headers(host: Host, path: str) -> Pe:
    """Return the headers of a PE file; raises as read_pe does."""
    from mlbackends.libraries.pe import Pe, read_pe

    return _extracted(host, path, "read_pe", Pe, read_pe)


@once_per_host
def macho_headers(host: Host, path: str) -> MachO:
    """Return the slice of a Mach-O file for this machine, or else the first; raises as read_macho does."""
    from mlbackends.libraries.macho import MachO, read_macho

    slices = _extracted(host, path, "read_macho", tuple[MachO, ...], read_macho)
    return next((each for each in slices if each.machine == host.machine), slices[0])


@once_per_host
def extract(host: Host, path: str, read: Callable[[str], _Result]) -> _Result:
    """Read a file of a host with `version_definitions`, `version_needs` or `imported_functions`.

    Raises as that does. A recording keeps the result, and not the file.
    """
    needs: Any = dict[str, tuple[str, ...]]
    kind = tuple[str, ...] if read.__name__ == "version_definitions" else needs
    return _extracted(host, path, read.__name__, kind, read)


def extract_symbols(host: Host, path: str, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` that a library of a host defines, as `defined_symbols` does."""
    names = tuple(names)
    read = partial(_are_defined, names, host.platform)
    defined = _extracted(host, path, "defined_symbols", dict[str, bool], read)
    return frozenset(name for name in names if defined.get(name))


def _extracted(
    host: Host, path: str, name: str, kind: Any, read: Callable[[str], _Result]
) -> _Result:
    result = host.extracted(path, name, kind | str, partial(_result_or_message, read))
    if isinstance(result, str):
        raise NotALibrary(result)
    return result


def _are_defined(names: tuple[str, ...], platform: str, path: str) -> dict[str, bool]:
    if platform == "win32":
        from mlbackends.libraries.pe import exported_symbols as symbols
    elif platform == "darwin":
        from mlbackends.libraries.macho import exported_symbols as symbols
    else:
        symbols = defined_symbols
    found = symbols(path, names)
    return {name: name in found for name in names}


def _result_or_message(read: Callable[[str], _Result], path: str) -> _Result | str:
    try:
        return read(path)
    except NotALibrary as error:
        return str(error)

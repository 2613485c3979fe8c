"""The headers, imports and version of a DLL, read from its PE file without loading it.

Source: Microsoft, "PE Format"; VERSIONINFO, VS_FIXEDFILEINFO and String in the Windows API reference.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from msgspec import Struct

from mlbackends.base.errors import NotALibrary
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import FileImage, format_of


class Pe(Struct, frozen=True):
    """The headers, the imports and the version resource of a PE file.

    `machine` is spelled as `uname -m` spells it, or is "machine-<number>". `soname` is the name that the
    linker wrote into the export table; the loader uses the file's name. `needed` is opened with the file,
    `delayed` at the first call of a function. Exported functions may lead to `forwards`, as all of
    conda-forge's libblas.dll do. `file_version` is four numbers; `strings` are those of the first
    language: FileDescription, ProductName, ...
    """

    machine: str
    soname: str = ""
    needed: tuple[str, ...] = ()
    delayed: tuple[str, ...] = ()
    forwards: tuple[str, ...] = ()
    file_version: str = ""
    strings: dict[str, str] = {}


@once_per_host
def pe_headers(host: Host, path: str) -> Pe:
    """Return the headers of a PE file of a host. Raises as read_pe does."""
    return host.extracted(path, read_pe, Pe)


def read_pe(path: str) -> Pe:
    """Read headers, imports and version. Raises NotALibrary, or OSError if the file cannot be read."""
    with PeImage(path) as image:
        at = image.exports
        soname = image.name(image.unpack("I", at + 12)[0]) if at else ""
        return Pe(
            image.machine,
            soname,
            tuple(dict.fromkeys(name for _, name in image.imports(_IMPORTS, 20, 12))),
            tuple(dict.fromkeys(name for _, name in image.imports(_DELAYED, 32, 4))),
            tuple(dict.fromkeys(image.forwards())),
            *image.version(),
        )


def imported_functions(path: str) -> dict[str, tuple[str | int, ...]]:
    """Return the functions that a file imports from each DLL, by name or number. Raises as read_pe does."""
    with PeImage(path) as image:
        by_library: dict[str, tuple[str | int, ...]] = {}
        for at, library in image.imports(_IMPORTS, 20, 12):
            lookups, bound = image.unpack("I12xI", at)
            functions = tuple(image.functions(lookups or bound))
            by_library[library] = by_library.get(library, ()) + functions
        return by_library


def exported_symbols(path: str, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` that a DLL exports. Raises as read_pe does."""
    return frozenset(map(str, exports(path, names)))


def exports(path: str, functions: Iterable[str | int]) -> dict[str | int, str]:
    """Return those functions that a DLL exports, by name or number, each with the "DLL.NAME" it leads to.

    That is "" for a function in the file. The loader searches the sorted names as this does.
    """
    with PeImage(path) as image:
        if not image.exports:
            return {}
        first, count, named, *tables = image.unpack("6I", image.exports + 16)
        numbers = (count, named, named)
        places, names, indices = (
            image.offset_of(at) if n else 0 for n, at in zip(numbers, tables, strict=True)
        )
        start, size = image.directories[_EXPORTS]

        def name_at(index: int) -> bytes:
            return image.bytes_at(image.unpack("I", names + 4 * index)[0])

        found: dict[str | int, str] = {}
        for function in functions:
            if isinstance(function, int):
                index = function - first
            else:
                name = function.encode("utf-8", "surrogatepass")
                at = bisect_left(range(min(named, _NAMES_LIMIT)), name, key=name_at)
                is_there = at < named and name_at(at) == name
                index = image.unpack("H", indices + 2 * at)[0] if is_there else -1
            address = image.unpack("I", places + 4 * index)[0] if 0 <= index < count else 0
            if address:
                found[function] = image.name(address) if start <= address < start + size else ""
        return found


class PeImage(FileImage):
    """The headers of a PE file. Addresses are relative to the address at which it is loaded."""

    noun = "a DLL"

    def _parse(self) -> None:
        head = self.block(0)
        if head[:2] != b"MZ":
            raise NotALibrary(f"the file is {format_of(head)}, not {self.noun}")
        (start,) = self.unpack("I", 0x3C)
        if self.exactly(start, 4) != b"PE\0\0":
            raise NotALibrary("the file is a program for DOS or 16-bit Windows, not a DLL")
        number, section_count, _, _, _, size, _ = self.unpack("HHIIIHH", start + 4)
        self.machine = table("libraries/machines")["pe"].get(f"{number:#x}", f"machine-{number}")
        options = start + 24
        (magic,) = self.unpack("H", options)
        if magic not in (_NARROW, _WIDE) or section_count > _SECTIONS_LIMIT:
            raise NotALibrary("the PE file is damaged: its headers have an impossible size")
        self.is_wide = magic == _WIDE
        base, base_at, fixed = ("Q", 24, 108) if self.is_wide else ("I", 28, 92)
        (self.base,) = self.unpack(base, options + base_at)
        (self.headers_size,) = self.unpack("I", options + 60)
        (count,) = self.unpack("I", options + fixed)
        count = min(count, _DIRECTORIES, max(0, size - fixed - 4) // 8)
        self.directories = [self.unpack("II", options + fixed + 4 + 8 * i) for i in range(count)]
        self.sections = []
        for i in range(section_count):
            virtual_size, address, raw_size, raw = self.unpack("IIII", options + size + 40 * i + 8)
            # What a section has beyond its data is zeros in memory, and not in the file.
            self.sections.append((address, min(raw_size, virtual_size or raw_size), raw))
        end = max((raw + size for _, size, raw in self.sections if size), default=0)
        if end > self.size:
            raise NotALibrary(f"the file is cut short: it has {self.size} bytes and its sections need {end}")
        self.exports = self._directory(_EXPORTS)

    def _directory(self, number: int) -> int:
        """Return the file offset of a data directory, 0 without one."""
        address, size = self.directories[number] if number < len(self.directories) else (0, 0)
        return self.offset_of(address) if address and size else 0

    def offset_of(self, address: int) -> int:
        """Return the file offset from which the loader reads this address."""
        for start, size, raw in self.sections:
            if start <= address < start + size:
                return raw + address - start
        if address < self.headers_size:
            return address
        raise NotALibrary(f"the PE file is damaged: address {address:#x} is in no section")

    def bytes_at(self, address: int) -> bytes:
        """Return the text at an address."""
        offset = self.offset_of(address)
        text = self.text(offset, max(self.size - offset, 0))
        if text is None:
            raise NotALibrary("the PE file is damaged: a name in it has no end")
        return text

    def name(self, address: int) -> str:
        """Return the name at an address; the format has ASCII."""
        return self.bytes_at(address).decode("ascii", "replace")

    def imports(self, directory: int, entry_bytes: int, name_at: int) -> Iterator[tuple[int, str]]:
        """Yield position and DLL name of each entry of one of the two import tables."""
        start = self._directory(directory)
        for at in range(start, start + entry_bytes * _IMPORTS_LIMIT, entry_bytes) if start else ():
            (address,) = self.unpack("I", at + name_at)
            if not address:
                return
            # Visual C++ 6 wrote addresses with the base in them.
            is_relative = directory == _IMPORTS or self.unpack("I", at)[0] & 1
            yield at, self.name(address if is_relative else (address - self.base) & 0xFFFFFFFF)
        if start:
            raise NotALibrary("the PE file is damaged: it needs more libraries than any real one")

    def functions(self, address: int) -> Iterator[str | int]:
        """Yield the functions in a table: their names, or the numbers of those imported by number."""
        word, start = ("Q" if self.is_wide else "I"), self.offset_of(address)
        size = struct.calcsize(word)
        for at in range(start, start + size * _FUNCTIONS_LIMIT, size):
            (entry,) = self.unpack(word, at)
            if not entry:
                return
            is_number = entry >> (8 * size - 1)
            yield entry & 0xFFFF if is_number else self.name(entry + 2)  # behind a hint of two bytes

    def forwards(self) -> Iterator[str]:
        """Yield the DLLs that the first exported functions are forwarded to."""
        if not self.exports:
            return
        start, size = self.directories[_EXPORTS]
        count, _, functions = self.unpack("III", self.exports + 20)
        at = self.offset_of(functions) if count else 0
        for i in range(min(count, _FORWARDS_LIMIT)):
            (address,) = self.unpack("I", at + 4 * i)
            if start <= address < start + size:
                library = self.name(address).rpartition(".")[0]
                yield library if library.lower().endswith(".dll") else f"{library}.dll"

    def version(self) -> tuple[str, dict[str, str]]:
        """Return the number of the file and the strings of the version resource."""
        root = self._directory(_RESOURCES)
        if not root:
            return "", {}
        at = self._entry(root, root, _RT_VERSION)
        for _ in range(2):  # name, language
            at = self._entry(root, at, None) if at else 0
        if not at:
            return "", {}
        address, size = self.unpack("II", at)
        data = self.exactly(self.offset_of(address), min(size, _VERSION_BYTES))
        fixed = data.find(_SIGNATURE, 0, 64)
        if fixed < 0 or len(data) < fixed + 24:
            return "", {}
        # The high half of each number comes second in memory.
        minor, major, revision, build = struct.unpack_from("<4H", data, fixed + 8)
        return f"{major}.{minor}.{build}.{revision}", _strings(data)

    def _entry(self, root: int, folder: int, number: int | None) -> int:
        """Return where an entry of a resource folder leads (the first one for None), 0 without one."""
        named, numbered = self.unpack("HH", folder + 12)
        for i in range(min(named + numbered, _RESOURCES_LIMIT)):
            identity, target = self.unpack("II", folder + 16 + 8 * i)
            if number in (None, identity):
                return root + (target & 0x7FFFFFFF)
        return 0


def _strings(data: bytes) -> dict[str, str]:
    """Return the strings of the first table in a version resource."""
    start = data.find("StringFileInfo".encode("utf-16-le"))
    strings: dict[str, str] = {}
    if start < 6:
        return strings
    (length,) = struct.unpack_from("<H", data, start - 6)
    end = min(start - 6 + length, len(data))
    at = _aligned(start + 30)  # the table of one language, whose name has eight digits
    at = _aligned(at + 6 + 18)
    while at + 6 < end and len(strings) < _STRINGS_LIMIT:
        (length,) = struct.unpack_from("<H", data, at)
        if length < 8:
            break
        text = data[at + 6 : min(at + length, end)].decode("utf-16-le", "replace")
        name, _, value = text.partition("\0")
        value = value.strip("\0 ").partition("\0")[0]
        if name.isidentifier() and value.isprintable():
            strings[name] = value
        at = _aligned(at + length)
    return strings


def _aligned(at: int) -> int:
    return (at + 3) & ~3


_EXPORTS, _IMPORTS, _RESOURCES, _DELAYED = 0, 1, 2, 13
_DIRECTORIES = 16
_NARROW, _WIDE = 0x10B, 0x20B
_RT_VERSION = 16
_SIGNATURE = b"\xbd\x04\xef\xfe"
_SECTIONS_LIMIT = 1024
_IMPORTS_LIMIT = 1024
_FORWARDS_LIMIT = 16
_FUNCTIONS_LIMIT = 1 << 14
_NAMES_LIMIT = 1 << 20
_RESOURCES_LIMIT = 4096
_VERSION_BYTES = 64 << 10
_STRINGS_LIMIT = 64

"""The load commands and exports of a library of macOS, read without loading it.

Sources: Apple, <mach-o/loader.h>, <mach-o/fat.h> and, for the trie of exports, dyld's MachOFile.
"""

import struct
from collections.abc import Iterable, Iterator
from uuid import UUID

from msgspec import Struct

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import FileImage, format_of, text_of


class MachO(Struct, frozen=True):
    """One slice of a Mach-O file: its processor, and what it needs.

    `machine` is spelled as `uname -m` spells it, or is "machine-<number>". `soname` is the install name, such
    as "@rpath/libomp.dylib", which others have in `needed`. `rpath` is as written (@loader_path is not
    expanded). `minimum` is the oldest macOS that loads it, such as "11.0".
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    minimum: str


@once_per_host
def macho_headers(host: Host, path: str) -> MachO:
    """Return the slice of a Mach-O file for this machine, or else the first. Raises as read_macho does."""
    slices = host.extracted(path, read_macho, tuple[MachO, ...])
    return next((part for part in slices if part.machine == host.machine), slices[0])


def read_macho(path: str) -> tuple[MachO, ...]:
    """Read the load commands of each slice: one, or those of a universal binary in their order.

    Raises NotALibrary, or OSError if the file cannot be opened or read.
    """
    with MachOFile(path) as file:
        return tuple(part.described() for part in file.slices)


def exported_symbols(path: str, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` that every slice exports, as C spells them. Raises as read_macho does."""
    with MachOFile(path) as file:
        return frozenset(name for name in names if all(part.exports(name) for part in file.slices))


class MachOFile(FileImage):
    """A Mach-O file with its slices: one, or several in a universal binary."""

    noun = "a Mach-O library"

    def _parse(self) -> None:
        head = self.block(0)
        if head[:4] not in _UNIVERSAL:
            self.slices = [MachOImage(self, 0)]
            return
        self.order = ">"
        (count,) = self.unpack("I", 4)
        if not 0 < count <= _SLICES_LIMIT:  # Java's classes begin with the same bytes
            raise NotALibrary(f"the file is not a universal binary: it would have {count} slices")
        layout, length = _UNIVERSAL[head[:4]]
        starts = [self.unpack(layout, 8 + length * i)[2] for i in range(count)]
        self.slices = [MachOImage(self, start) for start in starts]


class MachOImage(FileImage):
    """One slice of an open file, and its load commands: the position of each."""

    def __init__(self, file: MachOFile, start: int) -> None:
        self.descriptor, self.size, self.blocks = file.descriptor, file.size, file.blocks
        self.start = start
        head = self.exactly(start, max(0, min(28, self.size - start)))
        self.order, is_wide = _THIN.get(head[:4], ("", False))
        if not self.order:
            raise NotALibrary(f"the file is {format_of(head)}, not a Mach-O library")
        number, _, kind, count, _, flags = self.unpack("6I", start + 4)
        if kind not in _LOADABLE:
            raise NotALibrary(f"the Mach-O file is of type {kind}, not a library or program")
        self.machine = _MACHINES.get(number, f"machine-{number}")
        self.is_two_level = bool(flags & _TWO_LEVEL)
        self.commands: list[tuple[int, int]] = []
        at = start + (32 if is_wide else 28)
        for _ in range(min(count, _COMMANDS_LIMIT)):
            command, size = self.unpack("II", at)
            if size < _COMMAND_BYTES:
                raise NotALibrary("the Mach-O file is damaged: a load command has no size")
            self.commands.append((command, at))
            at += size

    def described(self) -> MachO:
        """Return what the load commands state."""
        names = self.texts(_ID)
        return MachO(
            machine=self.machine,
            soname=names[0] if names else "",
            needed=self.texts(*_LOADS),
            rpath=self.texts(_RPATH),
            minimum=self.versions()[0],
        )

    def texts(self, *commands: int) -> tuple[str, ...]:
        """Return the text of each of these commands; a field holds its offset."""
        texts = []
        for command, at in self.commands:
            if command in commands:
                size, start = self.unpack("II", at + 4)
                text = self.exactly(at + start, max(0, size - start)).partition(b"\0")[0]
                texts.append(text_of(text))
        return tuple(texts)

    def versions(self) -> tuple[str, str]:
        """Return the oldest macOS and the SDK's; "" if it is for another system or states none."""
        for command, at in self.commands:
            if command == _BUILD_VERSION:
                platform, *versions = self.unpack("III", at + 8)
            elif command == _VERSION_MIN_MACOSX:
                platform, versions = _MACOS, [*self.unpack("II", at + 8)]
            else:
                continue
            minimum, sdk = (f"{version >> 16}.{version >> 8 & 255}" for version in versions)
            return (minimum if platform == _MACOS else ""), sdk
        return "", ""

    def uuid(self) -> str:
        """Return the file's UUID as dyld shows it."""
        at = dict(self.commands).get(_UUID)
        return str(UUID(bytes=self.exactly(at + 8, 16))).upper() if at else "no uuid"

    def exports(self, name: str) -> bool:
        """Return whether the trie of exports has a function or variable of C, as dyld looks it up."""
        return is_in_trie(self.trie(), b"_" + name.encode("utf-8", "surrogatepass"))

    def trie(self) -> bytes:
        """Return the trie of exports, b"" without one."""
        for command, at in self.commands:
            if command in _EXPORTS:
                offset, size = self.unpack("II", at + _EXPORTS[command])
                return self.exactly(self.start + offset, size)
        return b""

    def undefined(self) -> Iterator[tuple[bytes, int]]:
        """Yield the symbols that others must define, each with its library's number or a special one."""
        places = dict(self.commands)
        if not {_SYMTAB, _DYSYMTAB} <= places.keys():
            return
        table, _, strings, length = self.unpack("4I", places[_SYMTAB] + 8)
        first, count = self.unpack("II", places[_DYSYMTAB] + 24)
        size = struct.calcsize(_NLIST)
        text = self.exactly(self.start + strings, length)
        symbols = self.exactly(self.start + table + first * size, count * size)
        for at, kind, _, description, _ in struct.iter_unpack(self.order + _NLIST, symbols):
            if not kind & _DEFINED_OR_DEBUG and not description & _WEAK:
                number = description >> 8 if self.is_two_level else _DYNAMIC
                yield text[at : text.find(b"\0", at)], number


def is_in_trie(trie: bytes, name: bytes) -> bool:
    """Return whether a trie of exports has a symbol. Raises NotALibrary."""
    node = 0
    try:
        for _ in range(
            2 * len(name) + 2 if trie else 0
        ):  # an empty edge leads to a symbol that others begin with
            terminal, at = _number(trie, node)
            if terminal and not name:
                return True
            at += terminal
            for _ in range(trie[at]):
                end = trie.index(b"\0", at + 1)
                edge = trie[at + 1 : end]
                node, following = _number(trie, end + 1)
                if name.startswith(edge):
                    name = name[len(edge) :]
                    break
                at = following - 1
            else:
                return False
    except (IndexError, ValueError):
        raise NotALibrary("the Mach-O file is damaged: its exports end too early") from None
    return False


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return value, at


#: The first bytes of a universal binary, with the layout and the length of a slice's entry.
_UNIVERSAL = {b"\xca\xfe\xba\xbe": ("5I", 20), b"\xca\xfe\xba\xbf": ("2I2Q2I", 32)}
#: The first bytes of a slice, with its byte order, and whether its words have eight bytes.
_THIN = {
    b"\xcf\xfa\xed\xfe": ("<", True),
    b"\xce\xfa\xed\xfe": ("<", False),
    b"\xfe\xed\xfa\xcf": (">", True),
    b"\xfe\xed\xfa\xce": (">", False),
}
_MACHINES = {7: "i386", 12: "arm", 18: "ppc", 0x1000007: "x86_64", 0x100000C: "arm64"}
_LOADABLE = (2, 6, 8, 9)  # a program, a library, a bundle, the stub of a library
_ID, _RPATH, _VERSION_MIN_MACOSX, _BUILD_VERSION, _MACOS = 0xD, 0x8000001C, 0x24, 0x32, 1
_LOADS = (0xC, 0x20, 0x80000018, 0x8000001F, 0x80000023)  # plain, lazy, weak, re-exported, upward
_EXPORTS = {0x22: 40, 0x80000022: 40, 0x80000033: 8}  # dyld's older commands, and the newer one
_UUID, _SYMTAB, _DYSYMTAB, _TWO_LEVEL, _NLIST = 0x1B, 0x2, 0xB, 0x80, "IBBHQ"
_DEFINED_OR_DEBUG, _WEAK, _DYNAMIC = 0xEE, 0x40, 254
_SLICES_LIMIT, _COMMANDS_LIMIT, _COMMAND_BYTES = 30, 4096, 8

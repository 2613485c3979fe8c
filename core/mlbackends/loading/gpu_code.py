"""The GPUs that a file has code for: NVIDIA's fat binaries and AMD's bundles, by their headers.

A fat binary holds, for each source file, one container with an entry for each target: machine code (a cubin)
or PTX and LTO-IR, which are translated for newer GPUs. Only the headers are read, 64 bytes of each entry.
Sources: nvcc's manual, "GPU compilation"; CUDA C++ Programming Guide, "Binary compatibility" and "Family-
and architecture-specific features"; the layout of entries and the bits of `a` and `f` as nvcc 12 and 13 write
them; for AMD, LLVM's ClangOffloadBundler and "User Guide for AMDGPU Backend", "Code Object Metadata".
"""

import re
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct

from mlbackends.base.patterns import bytes_pattern
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import BLOCK_BYTES, FileImage, text_of


def chip_table() -> dict[str, Any]:
    """Return chips.toml: the facts about chips that no file has."""
    return table("loading/chips.toml")  # type: ignore[no-any-return]


class Target(NamedTuple):
    """What a piece of code runs on. name: "sm_90a", "compute_80" for PTX, "gfx942"; kind: sm, ptx or gfx."""

    kind: str
    name: str

    @property
    def number(self) -> tuple[int, int]:
        """The capability that an NVIDIA target is for: (9, 0) for sm_90a."""
        digits = re.sub(r"\D", "", self.name)
        return (int(digits[:-1]), int(digits[-1])) if self.kind != "gfx" and len(digits) > 1 else (0, 0)

    def runs_on(self, chip: str) -> bool:
        """Return whether a chip runs this code: a capability such as "12.1", or a name such as "gfx1151".

        Machine code runs on its own capability and on higher minor ones of the same major; Tegra's chips run
        only their own. Code with the suffix `a` runs on its capability alone, with `f` on its family. An "x"
        in the name of an AMD target, such as gfx11xx, stands for any digit.
        """
        if (self.kind == "gfx") != chip.startswith("gfx"):
            return False
        if self.kind == "gfx":
            own, wanted = self.name.partition(":")[0], chip.partition(":")[0]
            is_generic = wanted in chip_table()["generic"].get(own, ())
            return is_generic or bool(re.fullmatch("gfx" + own[3:].replace("x", "."), wanted))
        major, minor = map(int, chip.split("."))
        if self.kind == "ptx" and self.name[-1].isdigit():
            return self.number <= (major, minor)
        capabilities = {chip, "{}.{}".format(*self.number)}
        if self.name.endswith("a") or any(capabilities & {*own} for own in chip_table()["tegra"].values()):
            return self.number == (major, minor)
        return self.number[0] == major and self.number[1] <= minor


class GpuCode(Struct, frozen=True):
    """The targets of the code in a file. unread: how many bundles are compressed as is not read here."""

    targets: tuple[Target, ...] = ()
    unread: int = 0

    @property
    def vendor(self) -> str:
        """Whose GPUs it is for: nvidia or amd."""
        return "nvidia" if any(target.kind != "gfx" for target in self.targets) else "amd"


@once_per_host
def gpu_code(host: Host, real: str, whole: bool = False) -> GpuCode:
    """Return the GPU code in a file, or `whole`, anywhere in it. Raises NotALibrary and OSError."""
    return host.extracted(real, read_all_gpu_code if whole else read_gpu_code, GpuCode)


def read_gpu_code(path: str, is_whole: bool = False) -> GpuCode:
    """Read a file of GPU code, or the sections for it of an ELF file. Raises NotALibrary and OSError."""
    with FileImage(path) as image:
        return _Search(image, is_whole).code


def read_all_gpu_code(path: str) -> GpuCode:
    """Read also what is outside the sections for GPU code, for which every byte of the file is read.

    cuFFT, for one, has its fat binaries in `.ldata`, and other libraries have plain cubins in `.rodata`.
    """
    return read_gpu_code(path, is_whole=True)


def has_gpu_sections(image: FileImage) -> bool:
    """Return whether an ELF file has sections for GPU code. Raises NotALibrary."""
    return any(_sections(image))


def _sections(image: FileImage) -> Iterator[tuple[int, int, tuple[bytes, ...]]]:
    """Yield where the sections for GPU code of a 64-bit ELF file begin and end, and how code begins there."""
    if image.exactly(0, min(image.size, 6)) != _ELF:
        return
    (start,), (entry_bytes, count, names_at) = image.unpack("Q", 40), image.unpack("3H", 58)
    if not start or entry_bytes != struct.calcsize(_SECTION) or names_at >= count:
        return
    sections = list(struct.iter_unpack(_SECTION, image.exactly(start, entry_bytes * count)))
    names = image.exactly(*sections[names_at][4:6])
    for name, _, _, _, offset, size, *_ in sections:
        if marks := _SECTIONS.get(names[name : names.find(b"\0", name)]):
            yield offset, offset + size, marks


def _ranges(image: FileImage, is_whole: bool) -> Iterator[tuple[int, int, tuple[bytes, ...]]]:
    """Yield the ranges of a file that may have GPU code, and how it begins there."""
    head = image.exactly(0, min(image.size, 32))
    if head.startswith(_ELF) and head[18:20] not in _MACHINES:
        yield from _sections(image)
        if is_whole:
            yield 0, image.size, _NVIDIA
    else:
        yield from ((0, image.size, marks) for marks in (_NVIDIA, _AMD) if head.startswith(marks))


class _Search:
    """The targets that are found in a file."""

    def __init__(self, image: FileImage, is_whole: bool) -> None:
        self._image, self._targets, self._unread = image, set[Target](), 0
        readers = {_FAT: self._fat_binary, _ELF: self._device_object}
        readers |= {_BUNDLE: self._bundle, _COMPRESSED_BUNDLE: self._compressed_bundle}
        for at, end, marks in _ranges(image, is_whole):
            length = BLOCK_BYTES
            while at < end:
                piece = self._bytes(at, min(length + len(_BUNDLE) - 1, end - at))
                # Two searches take a fifth of the time of a pattern's.
                found = [(place, mark) for mark in marks if (place := piece.find(mark)) >= 0]
                if found:
                    place, mark = min(found)
                    at += place
                    at, length = at + max(readers[mark](at), len(mark)), BLOCK_BYTES
                else:
                    at, length = at + length, min(length * 2, _PIECE_BYTES)  # mostly the next one is near
        self.code = GpuCode(tuple(sorted(self._targets)), self._unread)

    def _bytes(self, at: int, length: int) -> bytes:
        return self._image.exactly(at, max(0, min(length, self._image.size - at)))

    def _fat_binary(self, at: int) -> int:
        """Add a container of a fat binary; return its size, 0 for what only begins like one."""
        _, version, header_bytes, size = self._image.unpack("IHHQ", at)
        if version != 1:
            return 0
        entry, stop = at + header_bytes, min(at + header_bytes + size, self._image.size)
        targets, largest = [], 0
        while entry + 64 <= stop:
            fields = self._image.unpack("HHIQ12xI8xQ8xQ", entry)
            number_of_kind, _, entry_bytes, payload, number, flags, plain_bytes = fields
            if number_of_kind in _KINDS:
                kind, prefix = _KINDS[number_of_kind]
                suffix = "a" if flags & _ARCHITECTURE else "f" if flags & _FAMILY else ""
                targets.append(Target(kind, f"{prefix}{number}{suffix}"))
            largest = max(largest, payload, plain_bytes)
            if entry_bytes + payload < 64:
                return 0
            entry += entry_bytes + payload
        if largest >= _STUB_BYTES or any(target.kind != "sm" for target in targets):
            self._targets.update(targets)
        return stop - at if entry == stop else 0

    def _device_object(self, at: int) -> int:
        """Add a cubin or an AMD code object, whose notes name its target; older ones have its number."""
        head = self._bytes(at, 64)
        if head[18:20] not in _MACHINES or len(head) < 64:
            return 0
        _, sections, flags = struct.unpack_from("<QQI", head, 32)
        notes = self._bytes(at, min(max(sections, 4096), _NOTES_BYTES))
        if head[18:20] == _MACHINES[1]:
            self._targets |= {Target("gfx", text_of(name)) for name in _AMD_NAME.findall(notes)}
        else:
            number = flags >> 8 & 0xFF if head[8] >= _ABI_WITH_SHIFT else flags & 0xFF
            named = re.search(rb"-arch sm_(%d[af]?)\b" % number, notes)
            self._targets.add(Target("sm", f"sm_{text_of(named[1]) if named else number}"))
        return 0

    def _bundle(self, at: int) -> int:
        """Add a bundle; return its size."""
        return self._add_entries(self._bytes(at, _BUNDLE_BYTES))

    def _compressed_bundle(self, at: int) -> int:
        """Add a compressed bundle, or count it; return its size."""
        version, method, size = struct.unpack_from("<HHQ", self._bytes(at, 16).ljust(16, b"\0"), 4)
        is_wide = version >= _VERSION_WIDE
        plain = _decompressed(self._bytes(at + (32 if is_wide else 24), _PACKED_BYTES), method)
        self._unread += not plain.startswith(_BUNDLE)
        self._add_entries(plain)
        return int(size if is_wide else size & 0xFFFFFFFF)

    def _add_entries(self, data: bytes) -> int:
        """Add the targets in the table that a bundle begins with; return where the last one's code ends."""
        table_bytes = 32 + int.from_bytes(data[24:32], "little") * _ENTRY_BYTES
        entries = [(struct.unpack("<QQ", at), name) for at, name in _ENTRY.findall(data[:table_bytes])]
        self._targets |= {Target("gfx", text_of(name)) for _, name in entries}
        return max((offset + size for (offset, size), _ in entries), default=0)


def _decompressed(packed: bytes, method: int) -> bytes:
    """Return the beginning of what was compressed, b"" where nothing here decompresses it."""
    try:
        if method == 0:
            return zlib.decompressobj().decompress(packed, _PACKED_BYTES)
        if sys.version_info >= (3, 14):
            from compression import zstd

            return zstd.ZstdDecompressor().decompress(packed, _PACKED_BYTES)
    except (zlib.error, ValueError, ArithmeticError, OSError):
        pass
    return b""


_GFX = rb"gfx[0-9a-f]+(?:-\d)?(?:-generic)?(?::\w+[+-])*"
_FAT = 0xBA55ED50.to_bytes(4, "little")
_ELF = b"\x7fELF\2\1"
_BUNDLE, _COMPRESSED_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
_NVIDIA, _AMD = (_FAT, _ELF), (_BUNDLE, _COMPRESSED_BUNDLE)
_SECTIONS = {b".nv_fatbin": _NVIDIA, b"__nv_relfatbin": _NVIDIA, b".hip_fatbin": _AMD}
_AMD_NAME = bytes_pattern(rb"amdgcn[\w-]*-(" + _GFX + rb")")
#: Offset and size of an entry's code, the length of its name, the name; together they have fewer bytes.
_ENTRY_BYTES = 128
_ENTRY = bytes_pattern(rb"(?s)(.{16}).{8}\w+-amdgcn[\w-]*-(" + _GFX + rb")")
_SECTION = "<IIQQQQIIQQ"
_KINDS = {1: ("ptx", "compute_"), 2: ("sm", "sm_"), 8: ("ptx", "lto_")}
_ARCHITECTURE, _FAMILY = 0x100000, 0x200000
#: What linking device code leaves in each library is smaller than any kernel's code, and has none.
_STUB_BYTES = 2048
#: EM_CUDA and EM_AMDGPU.
_MACHINES = (bytes((190, 0)), bytes((224, 0)))
#: From this ABI on, the number is in the second byte of the flags.
_ABI_WITH_SHIFT = 8
#: From this version on, a compressed bundle's size has 64 bits.
_VERSION_WIDE = 3
_NOTES_BYTES, _PIECE_BYTES, _PACKED_BYTES, _BUNDLE_BYTES = 1 << 16, 1 << 20, 1 << 18, 8192

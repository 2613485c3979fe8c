"""The GPUs that a file has code for: NVIDIA's fat binaries and AMD's bundles, by their headers.

A fat binary holds, for each source file, one container with an entry for each target: machine code (a cubin)
or PTX and LTO-IR, which are translated for newer GPUs. Only the headers are read, 64 bytes of each entry.
Sources: nvcc's manual, "GPU compilation"; CUDA C++ Programming Guide, "Binary compatibility" and "Family-
and architecture-specific features"; the layout of entries and the bits of `a` and `f` as nvcc 12 and 13 write
them; for AMD, LLVM's ClangOffloadBundler.
"""

import re
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import Struct

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import BLOCK_BYTES, ElfImage, FileImage, text_of

#: Kind, name and PTX version of each target of a module.
Module = tuple[tuple[str, str, str], ...]


class Target(NamedTuple):
    """What a piece of code runs on. name: "sm_90a", "compute_80" for PTX, "gfx942"; kind: sm, ptx or gfx.

    version: of the PTX, "8.7"; a driver translates no newer one than its CUDA's.
    """

    kind: str
    name: str
    version: str = ""

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
        if self.kind == "gfx":
            wanted, *features = chip.split(":")
            own, *needed = self.name.split(":")
            same = len(own) == len(wanted) and all(a in ("x", b) for a, b in zip(own, wanted, strict=True))
            is_denied = any(word[:-1] + _OPPOSITE.get(word[-1:], "") in features for word in needed)
            return (same or own == _GENERIC.get(wanted)) and not is_denied
        if not re.fullmatch(r"\d+\.\d", chip):
            return False
        major, minor = map(int, chip.split("."))
        if self.name.endswith("a"):
            return self.number == (major, minor)
        if self.kind == "ptx" and not self.name.endswith("f"):
            return self.number <= (major, minor)
        if (major, minor) in _TEGRA or self.number in _TEGRA:
            return self.number == (major, minor)
        return self.number[0] == major and self.number[1] <= minor


class GpuCode(Struct, frozen=True):
    """The targets of each module of code in a file: one for each source file that was compiled.

    unread: how many modules are compressed in a way that is not read here.
    """

    modules: tuple[Module, ...] = ()
    unread: int = 0

    @property
    def targets(self) -> tuple[Target, ...]:
        """Every target that some module has, sorted."""
        return tuple(sorted({Target(*target) for module in self.modules for target in module}))

    @property
    def vendor(self) -> str:
        """Whose GPUs it is for: nvidia or amd."""
        return "nvidia" if any(kind != "gfx" for module in self.modules for kind, *_ in module) else "amd"

    def missing(self, chip: str) -> int:
        """Return how many modules have no code for a chip."""
        fits = {target: Target(*target).runs_on(chip) for target in set[Any]().union(*self.modules)}
        return sum(not any(fits[target] for target in module) for module in self.modules)


@once_per_host
def gpu_code(host: Host, real: str, whole: bool) -> GpuCode:
    """Return the GPU code in a file of a host. Raises NotALibrary and OSError.

    whole: also what is outside the sections that are made for it, for which every byte of data is read.
    """
    if not real.endswith(".so") and ".so." not in real:
        return host.extracted(real, read_gpu_file, GpuCode)
    return host.extracted(real, read_all_gpu_code if whole else read_gpu_code, GpuCode)


def has_gpu_sections(image: ElfImage) -> bool:
    """Return whether an ELF file has sections for GPU code. Raises NotALibrary."""
    return any(name in (*_FAT_SECTIONS, ".hip_fatbin") for name, *_ in _sections(image))


def read_gpu_code(path: str) -> GpuCode:
    """Read the headers of the GPU code in an ELF file. Raises NotALibrary and OSError."""
    with ElfImage(path) as image:
        found = _Found(image)
        for name, _, offset, size in _sections(image):
            if name in _FAT_SECTIONS:
                found.fat_binaries(offset, offset + size)
            elif name == ".hip_fatbin":
                found.bundles(offset, offset + size)
        return found.code


def read_all_gpu_code(path: str) -> GpuCode:
    """Read the GPU code in all sections of an ELF file that hold data. Raises NotALibrary and OSError.

    cuFFT, for one, has its fat binaries in `.ldata`, and other libraries have plain cubins in `.rodata`.
    """
    with ElfImage(path) as image:
        found = _Found(image)
        for name, flags, offset, size in _sections(image):
            if name == ".hip_fatbin":
                found.bundles(offset, offset + size)
            elif name in _FAT_SECTIONS or (flags & _SHF_ALLOC and not flags & _SHF_EXECUTABLE):
                for at in _occurrences(image, _FAT_BINARY, offset, offset + size):
                    found.fat_binaries(at, at + 1)
                for at in () if name in _FAT_SECTIONS else _occurrences(image, _CUBIN, offset, offset + size):
                    found.cubin(at)
        return found.code


def read_gpu_file(path: str) -> GpuCode:
    """Read a file that is GPU code and nothing else. Raises NotALibrary and OSError."""
    with _GpuFile(path) as image:
        found = _Found(image)
        head = image.exactly(0, min(image.size, 32))
        if head.startswith(_FAT_BINARY):
            found.fat_binaries(0, image.size)
        elif head.startswith((_BUNDLE, _COMPRESSED_BUNDLE)):
            found.bundles(0, image.size)
        elif head.startswith(b"\x7fELF") and head[18:20] == _EM_CUDA:
            found.cubin(0)
        elif head.startswith(b"\x7fELF") and head[18:20] == _EM_AMDGPU:
            # The metadata of a code object names its target.
            for at in _occurrences(image, _AMD_TRIPLE, 0, image.size):
                name = image.exactly(at, min(64, image.size - at))[len(_AMD_TRIPLE) :]
                if match := re.match(rb"gfx\w+(?::\w+[+-])*", name):
                    found.modules.append((("gfx", text_of(match[0]), ""),))
                    break
        return found.code


class _GpuFile(FileImage):
    noun = "a file of GPU code"


def _sections(image: ElfImage) -> Iterator[tuple[str, int, int, int]]:
    """Yield name, flags, offset and size of the sections; nothing where they were stripped."""
    wide = image.bits == _WIDE
    (start,) = image.unpack("W", 40 if wide else 32)
    entry_bytes, count, names_at = image.unpack("3H", 58 if wide else 46)
    layout = image.order + ("IIQQQQIIQQ" if wide else "10I")
    if not start or entry_bytes != struct.calcsize(layout):
        return
    sections = list(struct.iter_unpack(layout, image.exactly(start, entry_bytes * count)))
    if names_at >= len(sections):
        return
    names = image.exactly(sections[names_at][4], sections[names_at][5])
    for name, kind, flags, _, offset, size, *_ in sections:
        if kind != _SHT_NOBITS:
            yield text_of(names[name : names.find(b"\0", name)]), flags, offset, size


def _occurrences(image: FileImage, needle: bytes, start: int, end: int) -> Iterator[int]:
    """Yield the offsets of some bytes between two offsets of a file."""
    at, end, length = start, min(end, image.size), BLOCK_BYTES
    while at < end:
        piece = image.exactly(at, min(length + len(needle) - 1, end - at))
        found = piece.find(needle)
        while found >= 0:
            yield at + found
            found = piece.find(needle, found + 1)
        at, length = at + length, min(length * 2, _PIECE_BYTES)  # mostly the next one is near


class _Found:
    """The modules that were found in a file so far."""

    def __init__(self, image: FileImage) -> None:
        self._image = image
        self.modules: list[Module] = []
        self._unread = 0

    @property
    def code(self) -> GpuCode:
        return GpuCode(tuple(module for module in self.modules if module), self._unread)

    def fat_binaries(self, at: int, end: int) -> None:
        """Add the containers between two offsets; the last one may reach beyond the end."""
        image = self._image
        while at < end and at + 16 <= image.size:
            magic, version, header_bytes, size = image.unpack("IHHQ", at)
            if magic != _FAT_MAGIC or version != 1:
                at = next(_occurrences(image, _FAT_BINARY, at + 1, end), end)
                continue
            entry, stop = at + header_bytes, min(at + header_bytes + size, image.size)
            targets, largest = [], 0
            while entry + 64 <= stop:
                kind, _, entry_bytes, payload = image.unpack("HHIQ", entry)
                minor, major, number = image.unpack("HHI", entry + 24)
                (flags,) = image.unpack("Q", entry + 40)
                (plain_bytes,) = image.unpack("Q", entry + 56)
                suffix = "a" if flags & _ARCHITECTURE else "f" if flags & _FAMILY else ""
                largest = max(largest, payload, plain_bytes)
                if kind == _KIND_CUBIN:
                    targets.append(("sm", f"sm_{number}{suffix}", ""))
                elif kind == _KIND_PTX:
                    targets.append(("ptx", f"compute_{number}{suffix}", f"{major}.{minor}"))
                elif kind == _KIND_LTO:  # nvJitLink compiles it, whatever the driver
                    targets.append(("ptx", f"lto_{number}{suffix}", ""))
                if entry_bytes + payload < 64:
                    raise NotALibrary("the GPU code is damaged: an entry of a fat binary has no size")
                entry += entry_bytes + payload
            if largest >= _STUB_BYTES or any(kind != "sm" for kind, *_ in targets):
                self.modules.append(tuple(targets))
            at = max(stop, at + 16)

    def cubin(self, at: int) -> None:
        """Add a cubin, whose notes name its target; older ones have the number in their flags alone."""
        image = self._image
        if at + 64 > image.size or image.exactly(at + 18, 2) != _EM_CUDA:
            return
        abi = image.exactly(at + 8, 1)[0]
        (flags,) = image.unpack("I", at + 48)
        number = flags >> 8 & 0xFF if abi >= _ABI_WITH_SHIFT else flags & 0xFF
        start, size = image.unpack("QQ", at + 32)[1], image.size
        near = image.exactly(at, min(max(start, 4096), _NOTES_BYTES, size - at))
        named = re.search(rb"-arch sm_(%d[af]?)\b" % number, near)
        if number >= _LOWEST_SM:
            self.modules.append((("sm", f"sm_{text_of(named[1]) if named else number}", ""),))

    def bundles(self, at: int, end: int) -> None:
        """Add the bundles between two offsets."""
        image = self._image
        while at + 32 <= min(end, image.size):
            head = image.exactly(at, 24)
            if head.startswith(_COMPRESSED_BUNDLE):
                version, method = struct.unpack_from("<HH", head, 4)
                size = struct.unpack_from("<Q" if version >= _VERSION_WIDE else "<I", head, 8)[0]
                start = at + {1: 20, 2: 24}.get(version, 32)
                if version == 1 or not 32 <= size <= image.size - at:
                    size = 32  # the next one is searched for
                packed = image.exactly(start, max(0, min(_PACKED_BYTES, image.size - start)))
                plain = _decompressed(packed, method)
                if plain.startswith(_BUNDLE):
                    self.modules.append(_bundle(plain)[0])
                else:
                    self._unread += 1
                at += size + -size % 8
            elif head == _BUNDLE:
                targets, last = _bundle(image.exactly(at, min(_BUNDLE_BYTES, image.size - at)))
                self.modules.append(targets)
                at += last + -last % 8
            else:
                needles = (_BUNDLE, _COMPRESSED_BUNDLE)
                at = min(next(_occurrences(image, needle, at + 1, end), end) for needle in needles)


def _bundle(data: bytes) -> tuple[Module, int]:
    """Return the targets of the bundle that some bytes begin with, and where its last entry ends."""
    (count,) = struct.unpack_from("<Q", data.ljust(32, b"\0"), 24)
    entry, last, targets = 32, 32, []
    while count > 0 and entry + 24 <= len(data):
        offset, size, length = struct.unpack_from("<3Q", data, entry)
        triple = text_of(data[entry + 24 : entry + 24 + length])
        entry += 24 + length
        last, count = max(last, entry, offset + size), count - 1
        if "amdgcn" in triple:
            targets.append(("gfx", triple.rpartition("--")[2], ""))
    return tuple(targets), last


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


#: Chips whose machine code is their own: NVIDIA supports no other on Tegra, nor theirs elsewhere.
_TEGRA = ((5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0))
#: The generic target that runs on each of these. Source: LLVM, "User Guide for AMDGPU Backend".
_GENERIC = {
    f"gfx{number}": f"gfx{generic}-generic"
    for generic, numbers in {
        "9": "900 902 904 906 909 90c",
        "9-4": "940 941 942 950",
        "10-1": "1010 1011 1012 1013",
        "10-3": "1030 1031 1032 1033 1034 1035 1036",
        "11": "1100 1101 1102 1103 1150 1151 1152 1153",
        "12": "1200 1201",
    }.items()
    for number in numbers.split()
}
#: Every chip that LLVM's guide lists with its generic target, and those that have none.
AMD_CHIPS = (*_GENERIC, "gfx803", "gfx908", "gfx90a")
_WIDE = 64
_SHT_NOBITS = 8
_SHF_ALLOC, _SHF_EXECUTABLE = 2, 4
_FAT_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_FAT_MAGIC = 0xBA55ED50
_FAT_BINARY = _FAT_MAGIC.to_bytes(4, "little")
_KIND_PTX, _KIND_CUBIN, _KIND_LTO = 1, 2, 8
#: What linking device code leaves in each library is smaller than any kernel's code, and has none.
_STUB_BYTES = 2048
_ARCHITECTURE, _FAMILY = 0x100000, 0x200000
_EM_CUDA, _EM_AMDGPU = bytes((190, 0)), bytes((224, 0))
_CUBIN = b"\x7fELF\x02\x01"
#: From this ABI on, the number is in the second byte of the flags.
_ABI_WITH_SHIFT = 8
_LOWEST_SM = 20
_NOTES_BYTES = 1 << 16
_PIECE_BYTES = 1 << 20
_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_COMPRESSED_BUNDLE = b"CCOB"
_VERSION_WIDE = 3
_PACKED_BYTES = 1 << 18
_AMD_TRIPLE = b"amdgcn-amd-amdhsa--"
_OPPOSITE = {"+": "-", "-": "+"}
_BUNDLE_BYTES = 8192

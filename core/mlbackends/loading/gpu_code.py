"""The GPUs that a shared object has code for: NVIDIA's fat binaries and AMD's bundles, by their headers.

A fat binary holds, for each source file, one container with an entry for each target: machine code (a cubin)
or PTX, which the driver translates for newer GPUs. Only the headers are read, 64 bytes of each entry.
Sources: nvcc's manual, "GPU compilation"; CUDA C++ Programming Guide, "Binary compatibility" and "Family-
and architecture-specific features"; the layout of entries and the bits of `a` and `f` as nvcc 12 and 13 write
them; for AMD, LLVM's ClangOffloadBundler.
"""

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import ElfImage, text_of


class Target(NamedTuple):
    """What a piece of code runs on. name: "sm_90a", "compute_80" for PTX, "gfx942"; kind: sm, ptx or gfx."""

    kind: str
    name: str

    @property
    def number(self) -> tuple[int, int]:
        """The capability that an NVIDIA target is for: (9, 0) for sm_90a."""
        digits = re.sub(r"\D", "", self.name)
        return (int(digits[:-1]), int(digits[-1])) if self.kind != "gfx" else (0, 0)

    def runs_on(self, chip: str) -> bool:
        """Return whether a chip runs this code: a capability such as "12.1", or a name such as "gfx1151".

        Machine code runs on its own capability and on higher minor ones of the same major; Tegra's chips run
        only their own. Code with the suffix `a` runs on its capability alone, with `f` on its family.
        """
        if self.kind == "gfx":
            wanted, _, features = chip.partition(":")
            own, _, needed = self.name.partition(":")
            return own in (wanted, _GENERIC.get(wanted)) and (not features or not needed or needed in chip)
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
    """The targets of each module of code in a file: one for each source file that was compiled."""

    modules: tuple[tuple[tuple[str, str], ...], ...]

    @property
    def targets(self) -> tuple[Target, ...]:
        """Every target that some module has, sorted."""
        return tuple(sorted({Target(*target) for module in self.modules for target in module}))

    def missing(self, chip: str) -> int:
        """Return how many modules have no code for a chip."""
        fits = {target: Target(*target).runs_on(chip) for target in set().union(*self.modules)}
        return sum(not any(fits[target] for target in module) for module in self.modules)


@once_per_host
def gpu_code(host: Host, real: str) -> GpuCode:
    """Return the GPU code in a shared object of a host. Raises NotALibrary and OSError."""
    return host.extracted(real, read_gpu_code, GpuCode)


def read_gpu_code(path: str) -> GpuCode:
    """Read the headers of the GPU code in an ELF file. Raises NotALibrary and OSError."""
    with ElfImage(path) as image:
        modules: list[tuple[tuple[str, str], ...]] = []
        for name, offset, size in _sections(image):
            if name in (".nv_fatbin", "__nv_relfatbin"):
                modules += _fat_binaries(image, offset, offset + size)
            elif name == ".hip_fatbin":
                modules += _bundles(image, offset, offset + size)
        return GpuCode(tuple(module for module in modules if module))


def _sections(image: ElfImage) -> Iterator[tuple[str, int, int]]:
    """Yield name, offset and size of the sections; nothing where they were stripped."""
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
    for name, kind, _, _, offset, size, *_ in sections:
        if kind != _SHT_NOBITS:
            yield text_of(names[name : names.find(b"\0", name)]), offset, size


def _fat_binaries(image: ElfImage, at: int, end: int) -> Iterator[tuple[tuple[str, str], ...]]:
    while at + 16 <= end:
        magic, _, header_bytes, size = image.unpack("IHHQ", at)
        if magic != _FAT_BINARY:
            at += 8  # containers are aligned
            continue
        entry, stop, targets = at + header_bytes, at + header_bytes + size, []
        while entry + 64 <= min(stop, end):
            kind, _, entry_bytes, payload = image.unpack("HHIQ", entry)
            (number,) = image.unpack("I", entry + 28)
            (flags,) = image.unpack("Q", entry + 40)
            suffix = "a" if flags & _ARCHITECTURE else "f" if flags & _FAMILY else ""
            if kind in (1, 2):
                names = {1: ("ptx", f"compute_{number}{suffix}"), 2: ("sm", f"sm_{number}{suffix}")}
                targets.append(names[kind])
            if entry_bytes + payload < 64:
                raise NotALibrary("the GPU code is damaged: an entry of a fat binary has no size")
            entry += entry_bytes + payload
        yield tuple(targets)
        at = max(stop, at + 16)


def _bundles(image: ElfImage, at: int, end: int) -> Iterator[tuple[tuple[str, str], ...]]:
    while at + 32 <= end:
        if image.exactly(at, 24) != _BUNDLE:
            at += 8
            continue
        (count,) = image.unpack("Q", at + 24)
        entry, last, targets = at + 32, at + 32, []
        for _ in range(min(count, _MOST_ENTRIES)):
            offset, size, length = image.unpack("3Q", entry)
            triple = text_of(image.exactly(entry + 24, min(length, 4096)))
            entry += 24 + length
            last = max(last, entry, at + offset + size)
            if "amdgcn" in triple:
                targets.append(("gfx", triple.rpartition("--")[2]))
        yield tuple(targets)
        at = last + -last % 8


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
_WIDE = 64
_SHT_NOBITS = 8
_FAT_BINARY = 0xBA55ED50
_ARCHITECTURE, _FAMILY = 0x100000, 0x200000
_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_MOST_ENTRIES = 1024

"""The libraries that ldconfig wrote down for the loader: the format of /etc/ld.so.cache.

Three layouts are in use: the one of glibc 2.2 and newer ("glibc-ld.so.cache1.1"), the older one
("ld.so-1.7.0"), and the older one with the newer appended, which ldconfig wrote before 2.32.
"""

from __future__ import annotations

import struct
import sys
from os import fsdecode
from typing import TYPE_CHECKING, NamedTuple

from mlbackends.host.files import read_regular
from mlbackends.host.host import once_per_host
from mlbackends.model.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlbackends.host.host import Host


class CacheEntry(NamedTuple):
    """One library as ldconfig found it.

    `hwcap_subdirectory` is the glibc-hwcaps subdirectory ("x86-64-v3") that it lies in, else "":
    the loader takes such a library on processors of that level only.
    """

    soname: str
    path: str
    flags: int
    hwcap_subdirectory: str


@once_per_host
def cached_libraries(host: Host) -> list[str]:
    """Return the paths in a host's cache that are for its processor."""
    ours = {"amd64": "x86_64", "arm64": "aarch64"}.get(host.machine, host.machine)
    try:
        entries = host.extracted(
            "/etc/ld.so.cache",
            "loader_cache",
            list[CacheEntry],
            lambda path: read_cache(read_regular(path)),
        )
    except (OSError, ValueError):
        return []
    return [each.path for each in entries if not ours or architecture_of(each.flags) in ("", ours)]


def read_cache(data: bytes) -> list[CacheEntry]:
    """List the entries in the cache's own order; what is not a cache has none.

    An entry whose names cannot be read is left out, as the loader would pass over it.
    """
    if data.startswith(_NEW_MAGIC):
        return list(_new_entries(data, 0))
    return _old_entries(data) if data.startswith(_OLD_MAGIC) else []


def architecture_of(flags: int, little_endian: bool = sys.byteorder == "little") -> str:
    """Return the machine that an entry is for, in the words of `elf.Elf.machine`.

    "" where the flags do not tell: 32-bit x86, PowerPC, SPARC and others share the value 0.
    They do not tell the byte order of PowerPC either; it is that of the cache.
    """
    name: str = table("libraries/machines")["loader_cache"].get(str(flags >> 8 & 0xFF), "")
    return "ppc64le" if name == "ppc64" and little_endian else name


_OLD_MAGIC = b"ld.so-1.7.0"
_OLD_HEADER_BYTES, _OLD_ENTRY_BYTES = 16, 12
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_NEW_HEADER_BYTES, _NEW_ENTRY_BYTES = 48, 24
_EXTENSION_MAGIC = 0xEAA42174
_EXTENSION_SECTIONS_LIMIT = 64
_HWCAPS_TAG = 1
# Bit 62 says that the low half is an index into the list of subdirectories; the ten bits from 32
# on are the level the processor needs.
_HWCAP_KIND_MASK = ~(0x3FF << 32 | 0xFFFFFFFF) & (1 << 64) - 1
_HWCAP_IS_SUBDIRECTORY = 1 << 62
_PATH_BYTES_LIMIT = 4096
_ORDERS_BY_MARK = {0: "<>", 2: "<", 3: ">"}  # 0 is from before glibc 2.33; 1 marks a broken cache


def _new_entries(data: bytes, start: int) -> Iterator[CacheEntry]:
    order = _byte_order(data, start)
    if not order:
        return
    count, _, _, extension_at = struct.unpack_from(order + "IIII", data, start + len(_NEW_MAGIC))
    positions = _hwcap_positions(data, order, extension_at)
    entries_at = start + _NEW_HEADER_BYTES
    entries = memoryview(data)[entries_at : entries_at + count * _NEW_ENTRY_BYTES]
    for flags, key, value, _, hwcap in struct.iter_unpack(order + "IIIIQ", entries):
        soname = _string(data, start + key)
        path = _string(data, start + value)
        if not soname or not path:
            continue
        subdirectory = _subdirectory_in(path)
        if hwcap & _HWCAP_KIND_MASK == _HWCAP_IS_SUBDIRECTORY:
            index = hwcap & 0xFFFFFFFF
            if not subdirectory or index >= len(positions):
                continue
            # Positions count from the start of the file. ldconfig 2.36, asked for both layouts in
            # one file, counts them from the newer one, and its own "ldconfig -p" misreads them.
            names = [_string(data, base + positions[index]) for base in (0, start)]
            if subdirectory not in names:
                continue
        yield CacheEntry(soname, path, flags, subdirectory)


def _byte_order(data: bytes, start: int) -> str:
    """Return the byte order in which the table fits into the data, "" for none."""
    if start + _NEW_HEADER_BYTES > len(data):
        return ""
    for order in _ORDERS_BY_MARK.get(data[start + 28] & 3, ""):
        (count,) = struct.unpack_from(order + "I", data, start + len(_NEW_MAGIC))
        if start + _NEW_HEADER_BYTES + count * _NEW_ENTRY_BYTES <= len(data):
            return order
    return ""


def _hwcap_positions(data: bytes, order: str, at: int) -> tuple[int, ...]:
    """Read the string positions of the names of the glibc-hwcaps subdirectories."""
    if at == 0 or at + 8 > len(data):
        return ()
    magic, count = struct.unpack_from(order + "II", data, at)
    if magic != _EXTENSION_MAGIC:
        return ()
    for section in range(min(count, _EXTENSION_SECTIONS_LIMIT)):
        section_at = at + 8 + 16 * section
        if section_at + 16 > len(data):
            return ()
        tag, _, offset, size = struct.unpack_from(order + "IIII", data, section_at)
        if tag == _HWCAPS_TAG and offset + size <= len(data):
            return struct.unpack_from(f"{order}{size // 4}I", data, offset)
    return ()


def _subdirectory_in(path: str) -> str:
    return path.partition("/glibc-hwcaps/")[2].partition("/")[0]


def _old_entries(data: bytes) -> list[CacheEntry]:
    for order in "<>":
        if len(data) < _OLD_HEADER_BYTES:
            break
        (count,) = struct.unpack_from(order + "I", data, 12)
        strings_at = _OLD_HEADER_BYTES + count * _OLD_ENTRY_BYTES
        if strings_at > len(data):
            continue
        appended_at = data.find(_NEW_MAGIC, strings_at, strings_at + 8 + len(_NEW_MAGIC))
        if appended_at >= 0:
            return list(_new_entries(data, appended_at))
        rows = memoryview(data)[_OLD_HEADER_BYTES:strings_at]
        named = (
            (_string(data, strings_at + key), _string(data, strings_at + value), flags)
            for flags, key, value in struct.iter_unpack(order + "III", rows)
        )
        return [
            CacheEntry(soname, path, flags, _subdirectory_in(path))
            for soname, path, flags in named
            if soname and path
        ]
    return []


def _string(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + _PATH_BYTES_LIMIT)
    return fsdecode(data[at:end]) if end >= 0 else ""

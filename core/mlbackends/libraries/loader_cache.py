"""The libraries that ldconfig wrote down for the loader: the format of /etc/ld.so.cache.

Three layouts are in use: the one of glibc 2.2 and newer ("glibc-ld.so.cache1.1"), the older one
("ld.so-1.7.0"), and the older one with the newer appended, which ldconfig wrote before 2.32.
"""

from __future__ import annotations

import struct
import sys
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from mlbackends.base.tables import table
from mlbackends.host.files import read_regular
from mlbackends.host.host import once_per_host
from mlbackends.libraries.file_image import text_of

if TYPE_CHECKING:
    from mlbackends.host.host import Host


class CacheEntry(Struct, frozen=True, array_like=True):
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
            _read_cache_file,
        )
    except (OSError, ValueError):
        return []
    return [each.path for each in entries if not ours or architecture_of(each.flags) in ("", ours)]


def _read_cache_file(path: str) -> list[CacheEntry]:
    return read_cache(read_regular(path))


def read_cache(data: bytes) -> list[CacheEntry]:
    """List the entries in the cache's own order; what is not a cache has none.

    An entry whose names cannot be read is left out, as the loader would pass over it.
    """
    if not data.startswith((_NEW_MAGIC, _OLD_MAGIC)):
        return []
    start = data.find(_NEW_MAGIC)
    is_new = start >= 0
    if is_new:
        count_at, table_at, layout = start + 20, start + 48, "IIIIQ"
        orders = _ORDERS_BY_MARK.get(data[start + 28] & 3, "") if table_at <= len(data) else ""
    else:
        count_at, table_at, layout = 12, 16, "III"
        orders = "<>" if table_at <= len(data) else ""
    for order in orders:
        (count,) = struct.unpack_from(order + "I", data, count_at)
        end = table_at + count * struct.calcsize(order + layout)
        if end <= len(data):
            break
    else:
        return []
    # A character for each byte, so that what most names are, ASCII, is decoded once.
    names = data[start if is_new else end :].decode("latin-1")
    entries = []
    for flags, key, value, *_ in struct.iter_unpack(order + layout, data[table_at:end]):
        soname, path = _string(names, key), _string(names, value)
        if soname and path:
            subdirectory = path.partition("/glibc-hwcaps/")[2].partition("/")[0]
            entries.append(CacheEntry(soname, path, flags, subdirectory))
    return entries


def _string(names: str, at: int) -> str:
    end = names.find("\0", at, at + _PATH_BYTES_LIMIT)
    name = names[at:end] if end >= 0 else ""
    return name if name.isascii() else text_of(name.encode("latin-1"))


@cache
def architecture_of(flags: int, little_endian: bool = sys.byteorder == "little") -> str:
    """Return the machine that an entry is for, in the words of `elf.Elf.machine`.

    "" where the flags do not tell: 32-bit x86, PowerPC, SPARC and others share the value 0.
    They do not tell the byte order of PowerPC either; it is that of the cache.
    """
    name: str = table("libraries/machines")["loader_cache"].get(str(flags >> 8 & 0xFF), "")
    return "ppc64le" if name == "ppc64" and little_endian else name


_OLD_MAGIC = b"ld.so-1.7.0"
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_PATH_BYTES_LIMIT = 4096
_ORDERS_BY_MARK = {0: "<>", 2: "<", 3: ">"}  # 0 is from before glibc 2.33; 1 marks a broken cache

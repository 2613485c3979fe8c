"""The libraries that ldconfig listed for the loader: the format of /etc/ld.so.cache.

Three layouts are in use: that of glibc 2.2 and newer ("glibc-ld.so.cache1.1"), the older one
("ld.so-1.7.0"), and the older one with the newer appended, which ldconfig wrote before 2.32.
"""

import struct
import sys
from functools import cache

from msgspec import Struct

from mlbackends.base.tables import table
from mlbackends.host.files import read_regular
from mlbackends.host.host import Host, once_per_host
from mlbackends.libraries.elf import text_of


class CacheEntry(Struct, frozen=True, array_like=True):
    """One library as ldconfig found it."""

    soname: str
    path: str
    flags: int


def cache_entries(host: Host, machine: str) -> list[CacheEntry]:
    """Return the entries of a host's cache for a processor, all of them for "" and none without a cache."""
    try:
        entries = host.extracted("/etc/ld.so.cache", loader_cache, list[CacheEntry])
    except (OSError, ValueError):
        return []
    return [entry for entry in entries if not machine or architecture_of(entry.flags) in ("", machine)]


@once_per_host
def cached_libraries(host: Host) -> list[str]:
    """Return the paths in a host's cache that are for its processor."""
    ours = {"amd64": "x86_64", "arm64": "aarch64"}.get(host.machine, host.machine)
    return [entry.path for entry in cache_entries(host, ours)]


def loader_cache(path: str) -> list[CacheEntry]:
    """Return the entries of a cache file."""
    return read_cache(read_regular(path))


def read_cache(data: bytes) -> list[CacheEntry]:
    """Return the entries in the cache's own order; [] if the bytes are not a cache.

    An entry whose names cannot be read is left out, as the loader passes over it.
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
    names = data[start if is_new else end :]
    entries = []
    for flags, key, value, *_ in struct.iter_unpack(order + layout, data[table_at:end]):
        soname, path = _string(names, key), _string(names, value)
        if soname and path:
            entries.append(CacheEntry(soname, path, flags))
    return entries


def _string(names: bytes, at: int) -> str:
    end = names.find(b"\0", at, at + _PATH_BYTES_LIMIT)
    return text_of(names[at:end]) if end >= 0 else ""


@cache
def architecture_of(flags: int, little_endian: bool = sys.byteorder == "little") -> str:
    """Return the machine that an entry is for, spelled as `elf.Elf.machine` spells it.

    "" if the flags do not state it: 32-bit x86, PowerPC, SPARC and others share the value 0. They do not
    state the byte order of PowerPC either; it is that of the cache.
    """
    name: str = table("libraries/machines")["loader_cache"].get(str(flags >> 8 & 0xFF), "")
    return "ppc64le" if name == "ppc64" and little_endian else name


_OLD_MAGIC = b"ld.so-1.7.0"
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_PATH_BYTES_LIMIT = 4096
_ORDERS_BY_MARK = {0: "<>", 2: "<", 3: ">"}  # 0 is from before glibc 2.33; 1 marks a broken cache

"""A loader's cache that lists what another one does, in the layout of glibc 2.33 and newer.

A recorded machine has one where a path in its cache gets a stand-in: positions in the file are those of
its texts, and a text of another length would shift them all.
"""

import struct
from collections.abc import Iterable
from os import fsencode

from mlbackends.libraries.loader_cache import CacheEntry

_MAGIC = b"glibc-ld.so.cache1.1"
_LITTLE_ENDIAN = 2
_HEAD, _ROW = 48, 24


def cache_of(entries: Iterable[CacheEntry]) -> bytes:
    """Return the file's bytes. Subdirectories of glibc-hwcaps are told by the paths alone."""
    rows = list(entries)
    texts = b""
    places: dict[str, int] = {}
    strings_at = _HEAD + _ROW * len(rows)
    for text in (text for row in rows for text in (row.soname, row.path)):
        if text not in places:
            places[text] = strings_at + len(texts)
            texts += fsencode(text) + b"\0"
    head = _MAGIC + struct.pack("<IIB3xI12x", len(rows), len(texts), _LITTLE_ENDIAN, 0)
    table = b"".join(
        struct.pack("<IIIIQ", row.flags & 0xFFFFFFFF, places[row.soname], places[row.path], 0, 0)
        for row in rows
    )
    return head + table + texts

"""An ELF library that says of itself what another one does, and holds no code.

A recorded machine has these in place of its libraries: what a probe reads of a file of gigabytes
fits into a few hundred bytes. The loader of no system would run one.

Source: the System V ABI (generic), chapters 4 and 5; for symbol versions the Linux Standard Base.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sketch(NamedTuple):
    """What the library is to say. `symbols` are those that it defines, `versions` those of symbols.

    needs: the versions of symbols that it needs, by library: [("libc.so.6", ["GLIBC_2.28"])].
    machine: as `uname -m` has it; one that is not known here is written as the number 0.
    """

    machine: str
    soname: str = ""
    needed: Sequence[str] = ()
    rpath: Sequence[str] = ()
    runpath: Sequence[str] = ()
    symbols: Sequence[str] = ()
    versions: Sequence[str] = ()
    needs: Sequence[tuple[str, Sequence[str]]] = ()
    build_id: str = ""


def sketched(sketch: Sketch) -> bytes:
    """Return the file's bytes."""
    number, bits, order = _MACHINES.get(sketch.machine, (0, 64, "<"))
    return _File(sketch, number, bits == _WIDE_BITS, order).content()


_WIDE_BITS = 64
_MACHINES = {
    "i386": (3, 32, "<"),
    "i686": (3, 32, "<"),
    "arm": (40, 32, "<"),
    "armv7l": (40, 32, "<"),
    "x86_64": (62, 64, "<"),
    "aarch64": (183, 64, "<"),
    "ppc64le": (21, 64, "<"),
    "ppc64": (21, 64, ">"),
    "s390x": (22, 64, ">"),
    "riscv64": (243, 64, "<"),
    "loongarch64": (258, 64, "<"),
}
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_NEEDED, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT = 1, 4, 5, 6, 10, 11
_DT_SONAME, _DT_RPATH, _DT_RUNPATH = 14, 15, 29
_DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_GLOBAL_FUNCTION = 1 << 4 | 2
_NT_GNU_BUILD_ID = 3


class _File:
    """Lays the parts out one after another; addresses are offsets in the file."""

    def __init__(self, sketch: Sketch, number: int, wide: bool, order: str) -> None:
        self.sketch = sketch
        self.number = number
        self.wide = wide
        self.order = order
        self.texts = b"\0"
        self.places: dict[str, int] = {"": 0}

    def content(self) -> bytes:
        sketch = self.sketch
        entries = [(_DT_NEEDED, self._text(name)) for name in sketch.needed]
        lists = ((_DT_RPATH, sketch.rpath), (_DT_RUNPATH, sketch.runpath))
        entries += [(tag, self._text(":".join(folders))) for tag, folders in lists if folders]
        if sketch.soname:
            entries.append((_DT_SONAME, self._text(sketch.soname)))
        symbols, table = self._symbols(), self._hash_table()
        versions, needs = self._versions(), self._needs()
        note = self._note()

        head = (64 + 56 * 3) if self.wide else (52 + 32 * 3)
        word = 8 if self.wide else 4
        # The dynamic section's length is known before its values are: nine more entries at most.
        count = len(entries) + 10
        at = head
        places = {}
        for name, part in (
            ("dynamic", b"\0" * (2 * word * count)),
            ("symbols", symbols),
            ("hash", table),
            ("versions", versions),
            ("needs", needs),
            ("note", note),
            ("texts", self.texts),
        ):
            places[name] = at
            at += -(-len(part) // 8) * 8
        entries += [
            (_DT_STRTAB, places["texts"]),
            (_DT_STRSZ, len(self.texts)),
            (_DT_SYMTAB, places["symbols"]),
            (_DT_SYMENT, 24 if self.wide else 16),
            (_DT_HASH, places["hash"]),
        ]
        if versions:
            entries += [(_DT_VERDEF, places["versions"]), (_DT_VERDEFNUM, len(sketch.versions))]
        if needs:
            entries += [(_DT_VERNEED, places["needs"]), (_DT_VERNEEDNUM, len(sketch.needs))]
        entries += [(0, 0)] * (count - len(entries))
        form = self.order + ("2Q" if self.wide else "2I")
        dynamic = b"".join(struct.pack(form, *entry) for entry in entries)
        segments = (
            (_PT_LOAD, 0, at),
            (_PT_DYNAMIC, places["dynamic"], len(dynamic)),
            (_PT_NOTE, places["note"], len(note)),
        )
        parts = (dynamic, symbols, table, versions, needs, note, self.texts)
        return self._header(segments) + b"".join(part + b"\0" * (-len(part) % 8) for part in parts)

    def _header(self, segments: Sequence[tuple[int, int, int]]) -> bytes:
        head = 64 if self.wide else 52
        entry = 56 if self.wide else 32
        ident = b"\x7fELF" + bytes((2 if self.wide else 1, 1 if self.order == "<" else 2, 1))
        form = self.order + ("HHIQQQIHHHHHH" if self.wide else "HHIIIIIHHHHHH")
        data = ident.ljust(16, b"\0")
        data += struct.pack(
            form, 3, self.number, 1, 0, head, 0, 0, head, entry, len(segments), 0, 0, 0
        )
        for kind, offset, size in segments:
            if self.wide:
                data += struct.pack(
                    self.order + "IIQQQQQQ", kind, 4, offset, offset, offset, size, size, 8
                )
            else:
                data += struct.pack(
                    self.order + "IIIIIIII", kind, offset, offset, offset, size, size, 4, 4
                )
        return data

    def _text(self, text: str) -> int:
        if text not in self.places:
            self.places[text] = len(self.texts)
            self.texts += text.encode("utf-8", "surrogateescape") + b"\0"
        return self.places[text]

    def _symbols(self) -> bytes:
        form = self.order + ("IBBHQQ" if self.wide else "IIIBBH")
        data = struct.pack(form, *([0] * 6))
        for name in self.sketch.symbols:
            at = self._text(name)
            row = (at, _GLOBAL_FUNCTION, 0, 1, 1, 0)
            data += struct.pack(form, *(row if self.wide else (at, 1, 0, row[1], 0, 1)))
        return data

    def _hash_table(self) -> bytes:
        """Return the older hash table, which every machine's tools read."""
        # s390x is the one ABI whose table has words of eight bytes.
        form = "Q" if self.sketch.machine == "s390x" else "I"
        names = self.sketch.symbols
        buckets = [0] * max(1, len(names))
        chains = [0] * (len(names) + 1)
        for index, name in enumerate(names, 1):
            bucket = _system_v_hash(name) % len(buckets)
            chains[index] = buckets[bucket]
            buckets[bucket] = index
        numbers = (len(buckets), len(chains), *buckets, *chains)
        return struct.pack(f"{self.order}{len(numbers)}{form}", *numbers)

    def _versions(self) -> bytes:
        data = b""
        for index, name in enumerate(self.sketch.versions, 1):
            following = 28 if index < len(self.sketch.versions) else 0
            data += struct.pack(
                self.order + "HHHHIII", 1, 0, index + 1, 1, _system_v_hash(name), 20, following
            )
            data += struct.pack(self.order + "II", self._text(name), 0)
        return data

    def _needs(self) -> bytes:
        data = b""
        for index, (library, versions) in enumerate(self.sketch.needs, 1):
            following = 16 + 16 * len(versions) if index < len(self.sketch.needs) else 0
            row = (1, len(versions), self._text(library), 16, following)
            data += struct.pack(self.order + "HHIII", *row)
            for number, name in enumerate(versions, 1):
                after = 16 if number < len(versions) else 0
                row = (_system_v_hash(name), 0, number + 1, self._text(name), after)
                data += struct.pack(self.order + "IHHII", *row)
        return data

    def _note(self) -> bytes:
        if not self.sketch.build_id:
            return b""
        data = bytes.fromhex(self.sketch.build_id)
        head = struct.pack(self.order + "III", 4, len(data), _NT_GNU_BUILD_ID)
        return head + b"GNU\0" + data + b"\0" * (-len(data) % 4)


def _system_v_hash(name: str) -> int:
    wanted = 0
    for byte in name.encode("utf-8", "surrogateescape"):
        wanted = (wanted << 4) + byte & 0xFFFFFFFF
        high = wanted & 0xF0000000
        wanted = (wanted ^ high >> 24) & ~high
    return wanted

"""ELF files that stand for libraries and interpreters which a case needs and no wheel has.

A file has a soname, names of what it needs, and symbols that it defines or lacks; it has no code. That is
all that a dynamic loader looks at before it runs one. Source: the System V ABI, chapters 4 and 5.
"""

import struct

from msgspec import Struct

#: The number of an architecture in the ELF header, and its relocation for the address of a symbol.
_MACHINES = {"x86_64": (62, 6), "aarch64": (183, 1025)}
_PHDR, _SYMBOL, _RELA = "<IIQQQQQQ", "<IBBHQQ", "<QQq"
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_GNU_STACK = 1, 2, 3, 0x6474E551
_NEEDED, _HASH, _STRTAB, _SYMTAB, _RELA_AT, _RELA_SIZE, _RELA_ENTRY = 1, 4, 5, 6, 7, 8, 9
_STRING_SIZE, _SYMBOL_ENTRY, _SONAME, _RUNPATH = 10, 11, 14, 29


class StandIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A library without code. path: where it is installed, with SITE for the site-packages.

    soname: the file's name unless given; "-" for none. needs: DT_NEEDED. runpath: DT_RUNPATH. defines and
    lacks: its symbols. interpreter: the loader of a program.
    """

    path: str
    soname: str = ""
    needs: tuple[str, ...] = ()
    runpath: str = ""
    defines: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    interpreter: str = ""


def elf_file(stand_in: StandIn, machine: str) -> bytes:
    """Return the bytes of a stand-in for an architecture."""
    number, relocation = _MACHINES[machine]
    strings = bytearray(b"\0")

    def string(text: str) -> int:
        strings.extend(text.encode() + b"\0")
        return len(strings) - len(text.encode()) - 1

    symbols = [struct.pack(_SYMBOL, 0, 0, 0, 0, 0, 0)]
    symbols += [struct.pack(_SYMBOL, string(name), 0x10, 0, 0, 0, 0) for name in stand_in.lacks]
    symbols += [struct.pack(_SYMBOL, string(name), 0x12, 0, 0xFFF1, 1, 0) for name in stand_in.defines]
    soname = stand_in.soname or stand_in.path.rpartition("/")[2]
    tags = [(_NEEDED, string(name)) for name in stand_in.needs]
    tags += [(_SONAME, string(soname))] * (soname != "-")
    tags += [(_RUNPATH, string(stand_in.runpath))] * bool(stand_in.runpath)

    count = 3 + bool(stand_in.interpreter)
    interpreter = stand_in.interpreter.encode() + b"\0"
    interpreter_at = 64 + count * struct.calcsize(_PHDR)
    symbols_at = interpreter_at + len(interpreter) + -(interpreter_at + len(interpreter)) % 8
    strings_at = symbols_at + 24 * len(symbols)
    hash_at = strings_at + len(strings) + -(strings_at + len(strings)) % 8
    chain = [*range(2, len(symbols)), 0]  # one bucket: every symbol follows the one before it
    table = struct.pack(
        f"<{3 + len(symbols)}I", 1, len(symbols), len(symbols) > 1, 0, *chain[: len(symbols) - 1]
    )
    table += b"\0" * (-len(table) % 8)
    rela_at = hash_at + len(table) + 8  # the word before it is where the loader writes each address
    relocations = b"".join(
        struct.pack(_RELA, rela_at - 8, index << 32 | relocation, 0)
        for index in range(1, len(stand_in.lacks) + 1)
    )
    dynamic_at = rela_at + len(relocations)
    tags += [(_HASH, hash_at), (_STRTAB, strings_at), (_SYMTAB, symbols_at)]
    tags += [(_STRING_SIZE, len(strings)), (_SYMBOL_ENTRY, 24)]
    tags += [(_RELA_AT, rela_at), (_RELA_SIZE, len(relocations)), (_RELA_ENTRY, 24)] * bool(relocations)
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in (*tags, (0, 0)))

    size = dynamic_at + len(dynamic)
    headers = [(_PT_LOAD, 6, 0, size), (_PT_DYNAMIC, 6, dynamic_at, len(dynamic)), (_PT_GNU_STACK, 6, 0, 0)]
    headers += [(_PT_INTERP, 4, interpreter_at, len(interpreter))] * bool(stand_in.interpreter)
    data = bytearray(size)
    data[:64] = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, number, 1, 0, 64, 0, 0, 64, 56, count, 64, 0, 0
    )
    for at, (kind, flags, offset, length) in enumerate(headers):
        struct.pack_into(_PHDR, data, 64 + 56 * at, kind, flags, offset, offset, offset, length, length, 8)
    parts = (interpreter_at, interpreter), (symbols_at, b"".join(symbols)), (strings_at, bytes(strings))
    for at, part in (*parts, (hash_at, table), (rela_at, relocations), (dynamic_at, dynamic)):
        data[at : at + len(part)] = part
    return bytes(data)

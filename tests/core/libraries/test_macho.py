"""Libraries of macOS, put together here as Apple's linker does it: thin, universal and damaged ones."""

from __future__ import annotations

import contextlib
import json
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host
from mlbackends.libraries.macho import MachO, exported_symbols, is_in_trie, macho_headers, read_macho
from mlbackends.libraries.search import libraries_named
from mlbackends.libraries.symbols import extract_symbols

if TYPE_CHECKING:
    from pathlib import Path

ARM64, X86_64, PPC = 0x100000C, 0x1000007, 18
MAGIC = 0xFEEDFACF
DYLIB, PROGRAM, OBJECT = 6, 2, 1


def text_command(number: int, fixed: int, text: str) -> bytes:
    """Return a load command whose text comes after `fixed` bytes of fields."""
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 8)
    fields = struct.pack("<III", number, fixed + len(data), fixed)
    return fields.ljust(fixed, b"\0") + data


def trie(names: dict[str, bytes]) -> bytes:
    """Return exports as a trie of two levels: a node for each first letter, and its names below."""
    firsts = sorted({name[:1] for name in names})
    below = {first: [name[1:] for name in sorted(names) if name[:1] == first] for first in firsts}
    size = 2 + sum(len(first) + 2 for first in firsts)
    root, rest = bytes([0, len(firsts)]), b""
    for first in firsts:
        at = size + len(rest)
        root += first.encode() + b"\0" + bytes([at])
        node, leaves = bytes([0, len(below[first])]), b""
        node_size = 2 + sum(len(name) + 2 for name in below[first])
        for name in below[first]:
            node += name.encode() + b"\0" + bytes([at + node_size + len(leaves)])
            info = names[first + name]
            leaves += bytes([len(info)]) + info + b"\0"
        rest += node + leaves
    return root + rest


def library(machine: int = ARM64, kind: int = DYLIB, exports: int = 0x80000033) -> bytes:
    commands = [
        text_command(0xD, 24, "@rpath/libomp.dylib"),
        text_command(0xC, 24, "/usr/lib/libSystem.B.dylib"),
        text_command(0x80000018, 24, "@rpath/libweak.dylib"),
        text_command(0x8000001C, 12, "@loader_path/../lib"),
        struct.pack("<6I", 0x32, 24, 1, 12 << 16 | 3 << 8, 14 << 16, 0),
    ]
    names = trie({"_omp_get_max_threads": b"\0\x80\x20", "_other": b"\0\x10"})
    length = sum(map(len, commands)) + (16 if exports == 0x80000033 else 48)
    place = struct.pack("<II", 32 + length, len(names))
    if exports == 0x80000033:
        commands.append(struct.pack("<II", exports, 16) + place)
    else:
        commands.append(struct.pack("<II", exports, 48).ljust(40, b"\0") + place)
    head = struct.pack("<8I", MAGIC, machine, 0, kind, len(commands), length, 0, 0)
    return head + b"".join(commands) + names


def universal(*slices: tuple[int, bytes]) -> bytes:
    head, body = struct.pack(">II", 0xCAFEBABE, len(slices)), b""
    start = 4096
    for machine, data in slices:
        head += struct.pack(">5I", machine, 0, start + len(body), len(data), 12)
        body += data.ljust(len(data) + -len(data) % 4096, b"\0")
    return head.ljust(start, b"\0") + body


def written(folder: Path, data: bytes) -> str:
    file = folder / "libomp.dylib"
    file.write_bytes(data)
    return str(file)


def described(machine: str) -> MachO:
    return MachO(
        machine=machine,
        soname="@rpath/libomp.dylib",
        needed=("/usr/lib/libSystem.B.dylib", "@rpath/libweak.dylib"),
        rpath=("@loader_path/../lib",),
        minimum="12.3",
    )


def test_a_library_says_what_it_is_for_and_what_it_needs(tmp_path: Path) -> None:
    assert read_macho(written(tmp_path, library())) == (described("arm64"),)


def test_a_universal_binary_has_a_record_for_each_slice(tmp_path: Path) -> None:
    path = written(tmp_path, universal((X86_64, library(X86_64)), (ARM64, library())))
    assert read_macho(path) == (described("x86_64"), described("arm64"))
    assert exported_symbols(path, ["omp_get_max_threads", "absent"]) == {"omp_get_max_threads"}


def test_an_empty_edge_leads_to_a_symbol_that_others_begin_with() -> None:
    """Apple's old linker writes such an edge last; dyld takes the first that fits."""
    edges = b"\0\1_omp\0\x08" + b"\0\2x\0\x0f\0\x0f" + b"\1\0\0"
    assert [is_in_trie(edges, name) for name in (b"_omp", b"_ompx", b"_om", b"_ompy")] == [1, 1, 0, 0]


@pytest.mark.parametrize("command", [0x80000033, 0x80000022, 0x22], ids=hex)
def test_what_is_exported_is_found_by_its_whole_name(tmp_path: Path, command: int) -> None:
    path = written(tmp_path, library(exports=command))
    names = ["omp_get_max_threads", "other", "omp_get", "others", "", "x", "omp_get_max_threads_"]
    assert exported_symbols(path, names) == {"omp_get_max_threads", "other"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x7fELF" + b"\0" * 60, "not a Mach-O library"),
        (b"", "the file is empty"),
        (library(kind=OBJECT), "type 1, not a library or program"),
        (library()[:100], "cut short"),
        (struct.pack(">II", 0xCAFEBABE, 61) + b"\0" * 99, "would have 61 slices"),
        (struct.pack("<10I", MAGIC, ARM64, 0, DYLIB, 1, 8, 0, 0, 0xD, 0), "has no size"),
    ],
    ids=["elf", "empty", "object", "short", "java", "loop"],
)
def test_what_is_no_library_is_refused_with_the_reason(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(NotALibrary, match=message):
        read_macho(written(tmp_path, data))


@pytest.mark.parametrize(
    ("machine", "reason"),
    [("arm64", []), ("x86_64", [("wrong-architecture", "is for arm64; this machine is x86_64")])],
)
def test_a_mac_takes_the_slice_for_its_processor(
    tmp_path: Path, machine: str, reason: list[tuple[str, str]]
) -> None:
    recorded = {
        "platform": "darwin",
        "uname": {"machine": machine},
        "environment": {"DYLD_LIBRARY_PATH": "/opt/lib:/opt/both"},
    }
    (tmp_path / "host.json").write_text(json.dumps(recorded))
    for name in ("lib", "both"):
        (tmp_path / "root/opt" / name).mkdir(parents=True)
    written(tmp_path / "root/opt/lib", library())
    written(tmp_path / "root/opt/both", universal((ARM64, library()), (X86_64, library(X86_64))))
    host = Host(str(tmp_path))

    one, both = libraries_named(host, "openmp", "libomp")

    seen = [(why.code, why.message) for why in one.reasons]
    assert [code for code, _ in seen] == [code for code, _ in reason]
    assert all(text in message for (_, message), (_, text) in zip(seen, reason, strict=True))
    assert not both.reasons
    assert macho_headers(host, both.path).machine == machine
    assert extract_symbols(host, both.path, ["other", "none"]) == {"other"}


@given(st.binary(max_size=40), st.integers(0, len(library())))
def test_a_damaged_library_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    data = library()[:at] + noise + library()[at + len(noise) :]
    path = written(tmp_path_factory.mktemp("damaged"), data)
    for read in (read_macho, lambda path: exported_symbols(path, ["omp_get_max_threads"])):
        with contextlib.suppress(NotALibrary):
            read(path)

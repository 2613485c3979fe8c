"""Packages of macOS, followed as dyld opens them: @rpath, two-level names, slices, dyld's own words."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest
from tests.core.libraries.test_macho import ARM64, DYLIB, MAGIC, X86_64, text_command, trie, universal

from mlbackends.host.host import Host
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import PackageLoading, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SYSTEM = "/usr/lib/libSystem.B.dylib"
WEAK_LIBRARY, REEXPORTED, FLAT = 0x80000018, 0x8000001F, 254
EXTENSION, LIBRARY = "pkg/_ext.cpython-311-darwin.so", "pkg/.dylibs/libfoo.dylib"


def macho(
    needs: Sequence[str | tuple[int, str]] = (),
    exports: Sequence[str] = (),
    lacks: Sequence[tuple[str, int]] = (),
    rpath: str = "",
    machine: int = ARM64,
    minimum: int = 11,
    own: str = "@rpath/libfoo.dylib",
) -> bytes:
    """Return a library. needs: names, or a load command with one. lacks: symbols, each of which library."""
    commands = [text_command(0xD, 24, own)] if own else []
    for need in needs:
        number, name = need if isinstance(need, tuple) else (0xC, need)
        commands.append(text_command(number, 24, name))
    commands += [text_command(0x8000001C, 12, rpath)] if rpath else []
    commands.append(struct.pack("<6I", 0x32, 24, 1, minimum << 16, 15 << 16, 0))
    names = trie(dict.fromkeys(exports, b"\0\x10"))
    strings, symbols = b"\0", b""
    for name, library in lacks:
        symbols += struct.pack("<IBBHQ", len(strings), 1, 0, library << 8, 0)
        strings += name.encode() + b"\0"
    length = sum(map(len, commands)) + 16 + 24 + 80
    at = 32 + length
    commands.append(struct.pack("<4I", 0x80000033, 16, at, len(names)))
    places = (at + len(names), len(lacks), at + len(names) + len(symbols), len(strings))
    commands.append(struct.pack("<6I", 0x2, 24, *places))
    commands.append(struct.pack("<8I", 0xB, 80, 0, 0, 0, 0, 0, len(lacks)).ljust(80, b"\0"))
    head = struct.pack("<8I", MAGIC, machine, 0, DYLIB, len(commands), length, 0x80, 0)
    return head + b"".join(commands) + names + symbols + strings


def extension(*needs: str | tuple[int, str], lacks: Sequence[tuple[str, int]] = ()) -> bytes:
    needs = (SYSTEM, *needs) if needs else (SYSTEM, "@rpath/libfoo.dylib")
    return macho(needs, ["_PyInit__ext"], lacks, rpath="@loader_path/.dylibs", own="")


def resolved(folder: Path, files: dict[str, bytes]) -> PackageLoading:
    """Install a package of these files on an Apple silicon with macOS 14, and resolve it."""
    uname = {"machine": "arm64", "release": "23.6.0"}
    python = {"executable": "/opt/bin/python3", "version": "3.11.9", "path": ["/site"]}
    folder.joinpath("host.json").write_text(
        json.dumps({"platform": "darwin", "uname": uname, "python": python})
    )
    record = "".join(f"{name},,\n" for name in [*files, "pkg/__init__.py"]).encode()
    files = {
        **files,
        "pkg/__init__.py": b"from . import _ext",
        "pkg-1.0.dist-info/RECORD": record,
    }
    for name, data in files.items():
        path = folder / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return resolve(Host(str(folder)), ["pkg"]).packages[0]


FOO = macho([SYSTEM], ["_foo"])
WITH_FOO = extension(lacks=[("_foo", 2), ("_malloc", 1), ("_PyModule_Create2", FLAT)])


@pytest.mark.parametrize(
    "files",
    [
        {EXTENSION: WITH_FOO, LIBRARY: FOO},
        {EXTENSION: extension((WEAK_LIBRARY, "@rpath/libgone.dylib"))},
        {
            EXTENSION: WITH_FOO,
            LIBRARY: macho([(REEXPORTED, "@loader_path/libinner.dylib")]),
            "pkg/.dylibs/libinner.dylib": FOO,
        },
        {EXTENSION: WITH_FOO, LIBRARY: universal((X86_64, macho(machine=X86_64)), (ARM64, FOO))},
    ],
    ids=["rpath", "weak", "re-exported", "universal"],
)
def test_what_dyld_finds_loads(tmp_path: Path, files: dict[str, bytes]) -> None:
    package = resolved(tmp_path, files)

    assert (package.verdict, package.faults) == (Verdict.LOADS, ())


@pytest.mark.parametrize(
    ("library", "code", "name", "words"),
    [
        (None, "missing-library", "@rpath/libfoo.dylib",
         ("Library not loaded: @rpath/libfoo.dylib\n  Referenced from: <no uuid> /site/{ext}\n"
         "  Reason: tried: '/site/{lib}' (no such file)")),
        (macho(machine=X86_64), "wrong-architecture", "@rpath/libfoo.dylib",
         "'/site/{lib}' (mach-o file, but is an incompatible architecture (have 'x86_64', need 'arm64'))"),
        (macho(exports=["_other"]), "missing-symbol", "_foo",
         ("Symbol not found: _foo\n  Referenced from: <no uuid> /site/{ext}\n"
         "  Expected in:     <no uuid> /site/{lib}")),
        (macho(exports=["_foo"], minimum=15), "not-read", "libfoo.dylib",
         "/site/{lib} is built for macOS 15.0 which is newer than the running 14"),
    ],
)  # fmt: skip
def test_what_does_not_load_has_dylds_words(
    tmp_path: Path, library: bytes | None, code: str, name: str, words: str
) -> None:
    package = resolved(tmp_path, {EXTENSION: WITH_FOO, **({LIBRARY: library} if library else {})})

    (fault,) = package.faults
    assert package.verdict is (Verdict.UNKNOWN if code == "not-read" else Verdict.FAILS)
    assert (fault.code, fault.name) == (code, name)
    assert words.format(ext=EXTENSION, lib=LIBRARY) in fault.message
    assert code == "not-read" or fault.message.startswith(f"dlopen(/site/{EXTENSION}, 0x0002): ")


def test_a_flat_symbol_of_cxx_has_to_be_in_what_is_loaded(tmp_path: Path) -> None:
    files = {EXTENSION: extension(SYSTEM, lacks=[("__ZN5torch4cudaEv", FLAT), ("__ZNSt3__14sortEv", FLAT)])}

    (fault,) = resolved(tmp_path, files).faults

    assert fault.message.endswith("symbol not found in flat namespace '__ZN5torch4cudaEv'")
    assert fault.others == ()

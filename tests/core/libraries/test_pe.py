"""DLLs are read as Windows' loader reads them, whatever their headers claim."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbackends.base.errors import NotALibrary
from mlbackends.libraries.pe import Pe, exported_symbols, imported_functions, read_pe
from mlbackends.libraries.windows import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import WindowsMachine

#: Where the one section of a forged DLL lies in memory, and in the file.
ADDRESS, PLACE = 0x1000, 0x400


class Forge:
    """The section of a DLL, to which tables are added; `at` is an address in memory."""

    def __init__(self) -> None:
        self.data = b""

    def add(self, data: bytes) -> int:
        at = ADDRESS + len(self.data)
        self.data += data + b"\0" * (-len(data) % 4)
        return at

    def name(self, text: str) -> int:
        return self.add(text.encode() + b"\0")


def version_resource(numbers: Sequence[int], strings: dict[str, str]) -> bytes:
    def block(key: str, value: bytes, children: bytes = b"", words: int = 0) -> bytes:
        head = key.encode("utf-16-le") + b"\0\0"
        body = b"\0" * (-(6 + len(head)) % 4) + value
        body += b"\0" * (-(6 + len(head) + len(body)) % 4) * bool(children) + children
        return struct.pack("<HHH", 6 + len(head) + len(body), words or len(value), 1) + head + body

    rows = b""
    for name, value in strings.items():
        row = block(name, value.encode("utf-16-le") + b"\0\0", words=len(value) + 1)
        rows += row + b"\0" * (-len(row) % 4)
    fixed = struct.pack("<II", 0xFEEF04BD, 0x10000)
    for major, minor, build, revision in (numbers, numbers):
        fixed += struct.pack("<HHHH", minor, major, revision, build)
    texts = block("StringFileInfo", b"", block("040904b0", b"", rows))
    return block("VS_VERSION_INFO", fixed + b"\0" * 28, texts)


def forged(
    imports: dict[str, list[str]] | None = None,
    delayed: Sequence[str] = (),
    exports: Sequence[str] = (),
    forwards: Sequence[str] = (),
    version: Sequence[int] = (),
    machine: int = 0x8664,
    wide: bool = True,
) -> bytes:
    """Return a DLL with these tables, in the order of the fields of its headers."""
    forge, word = Forge(), "<Q" if wide else "<I"
    rows = b""
    for library, functions in (imports or {}).items():
        places = [forge.add(b"\0\0" + name.encode() + b"\0") for name in functions]
        lookups = forge.add(b"".join(struct.pack(word, at) for at in [*places, 0]))
        rows += struct.pack("<5I", lookups, 0, 0, forge.name(library), lookups)
    directories = {1: (forge.add(rows + bytes(20)), len(rows) + 20)} if imports else {}
    rows = b"".join(struct.pack("<8I", 1, forge.name(name), *[0] * 6) for name in delayed)
    directories |= {13: (forge.add(rows + bytes(32)), len(rows) + 32)} if delayed else {}
    if exports or forwards:
        names = sorted([*exports, *(f"to{i}" for i in range(len(forwards)))])
        texts = [forge.name(name) for name in names]
        start = forge.add(bytes(40))
        leading = [forge.name(name) for name in forwards]
        places = [leading.pop(0) if name not in exports else 64 for name in names]
        places_of_code = forge.add(struct.pack(f"<{len(names)}I", *places))
        numbers = forge.add(struct.pack(f"<{len(names)}H", *range(len(names))))
        listed = forge.add(struct.pack(f"<{len(names)}I", *texts))
        own = forge.name("own.dll")
        table = struct.pack("<3I", 0, 0, 0) + struct.pack(
            "<7I", own, 1, len(names), len(names), places_of_code, listed, numbers
        )
        at = start - ADDRESS
        forge.data = forge.data[:at] + table + forge.data[at + 40 :]
        directories[0] = (start, ADDRESS + len(forge.data) - start)
    if version:
        data = forge.add(version_resource(version, {"ProductName": "A product", "FileVersion": "7"}))
        root = forge.add(b"")
        folders = b""
        for step, number in enumerate((16, 1, 0x409)):
            deeper = 0x80000000 * (step < 2) + 24 * (step + 1)
            folders += struct.pack("<IIHHHH2I", 0, 0, 0, 0, 0, 1, number, deeper)
        size = len(version_resource(version, {"ProductName": "A product", "FileVersion": "7"}))
        forge.add(folders + struct.pack("<4I", data, size, 0, 0))
        directories[2] = (root, len(folders) + 16)
    listed_directories = b"".join(
        struct.pack("<II", *directories.get(number, (0, 0))) for number in range(16)
    )
    optional = struct.pack("<H", 0x20B if wide else 0x10B) + bytes(22 if wide else 26)
    optional += struct.pack(word, 0x180000000 if wide else 0x10000000)
    optional += struct.pack("<II", 0x1000, 0x200).ljust(60 - len(optional), b"\0")
    optional += struct.pack("<I", PLACE)
    optional = optional.ljust(108 if wide else 92, b"\0") + struct.pack("<I", 16)
    optional += listed_directories
    section = b".all\0\0\0\0" + struct.pack("<4I", len(forge.data), ADDRESS, len(forge.data), PLACE)
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    head += b"PE\0\0" + struct.pack("<HHIIIHH", machine, 1, 0, 0, 0, len(optional), 0x2000)
    return (head + optional + section.ljust(40, b"\0")).ljust(PLACE, b"\0") + forge.data


WHOLE = forged(
    imports={"KERNEL32.dll": ["Sleep", "CloseHandle"], "libiomp5md.dll": ["omp_get_max_threads"]},
    delayed=["mkl_core.2.dll"],
    exports=["alpha", "beta", "gamma"],
    forwards=["mkl_rt.2.dgemm_"],
    version=(5, 0, 2026, 213),
)


def written(folder: Path, data: bytes) -> str:
    path = folder / "a.dll"
    path.write_bytes(data)
    return str(path)


def test_headers_imports_and_version_are_read(tmp_path: Path) -> None:
    assert read_pe(written(tmp_path, WHOLE)) == Pe(
        machine="x86_64",
        soname="own.dll",
        needed=("KERNEL32.dll", "libiomp5md.dll"),
        delayed=("mkl_core.2.dll",),
        forwards=("mkl_rt.2.dll",),
        file_version="5.0.2026.213",
        strings={"ProductName": "A product", "FileVersion": "7"},
    )


def test_exported_functions_are_found_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE)

    found = exported_symbols(path, ["alpha", "gamma", "to0", "alph", "alphaa", "zeta", ""])

    assert found == {"alpha", "gamma", "to0"}


def test_imported_functions_are_listed_by_library(tmp_path: Path) -> None:
    assert imported_functions(written(tmp_path, WHOLE)) == {
        "KERNEL32.dll": ("Sleep", "CloseHandle"),
        "libiomp5md.dll": ("omp_get_max_threads",),
    }


@pytest.mark.parametrize(
    ("number", "name"),
    [(0xAA64, "aarch64"), (0x14C, "i386"), (0x1C4, "arm"), (0x200, "machine-512")],
)
def test_the_processor_has_the_name_that_uname_gives(tmp_path: Path, number: int, name: str) -> None:
    wide = number != 0x14C
    data = forged({"a.dll": ["f"]}, machine=number, wide=wide, exports=["f"])

    pe = read_pe(written(tmp_path, data))

    assert (pe.machine, pe.needed, pe.soname) == (name, ("a.dll",), "own.dll")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\x7fELF" + bytes(64), "of an unknown format"),
        (b"MZ" + bytes(62), "for DOS or 16-bit Windows"),
        (b"MZ" + bytes(58) + struct.pack("<I", 0x7FFFFFFF), "headers point to byte"),
        (WHOLE[:-40], "cut short"),
        (WHOLE[:0x200], "cut short"),
    ],
)
def test_what_is_no_dll_is_told_as_what_it_is(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(NotALibrary, match=why):
        read_pe(written(tmp_path, data))


def test_a_table_of_imports_without_an_end_is_refused(tmp_path: Path) -> None:
    many = forged({f"library{i}.dll": [] for i in range(1025)})

    with pytest.raises(NotALibrary, match="needs more libraries than any real one"):
        read_pe(written(tmp_path, many))


def read_everything(path: str) -> None:
    try:
        read_pe(path)
        exported_symbols(path, ["alpha", "dgemm_"])
        imported_functions(path)
    except NotALibrary:
        pass


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=6),
    length=st.integers(0, len(WHOLE)) | st.just(len(WHOLE)),
)
def test_damaged_dlls_are_read_or_refused(
    tmp_path: Path, changes: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(WHOLE)
    for at, byte in changes:
        data[at] = byte

    read_everything(written(tmp_path, bytes(data[:length])))


def real_dlls() -> list[Path]:
    """Return DLLs that were not made here: Windows' Python's, or those of packages for Windows."""
    folders = [Path(sys.base_prefix)] if sys.platform == "win32" else []
    folders += [Path(folder) / "setuptools" for folder in sys.path]
    folders += [Path(folder) / "pip" / "_vendor" / "distlib" for folder in sys.path]
    return [file for folder in folders for file in [*folder.glob("*.dll"), *folder.glob("*.exe")]]


@pytest.mark.skipif(not real_dlls(), reason="no program for Windows is here")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
@given(data=st.data())
def test_damaged_real_programs_are_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(real_dlls())).read_bytes()[: 1 << 18])
    for _ in range(4):
        content[data.draw(st.integers(0, min(len(content), 2048) - 1))] = data.draw(st.integers(0, 255))

    read_everything(written(tmp_path, bytes(content)))


# No objdump reads programs for Arm beside these.
@pytest.mark.parametrize(
    "path", [dll for dll in real_dlls() if "arm" not in dll.name][:12], ids=lambda path: path.name
)
def test_real_programs_are_read_as_objdump_reads_them(path: Path) -> None:
    objdump = shutil.which("objdump")
    output = ""
    if objdump:
        command = [objdump, "-p", str(path)]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if "DLL Name:" not in output:
        pytest.skip("no objdump here that reads PE files of this processor")
    lines = [line.partition("DLL Name:")[2].strip() for line in output.splitlines()]

    pe = read_pe(str(path))

    assert {*pe.needed, *pe.delayed} == {*filter(None, lines)}


def test_a_function_that_a_dll_lacks_is_named(windows_machine: WindowsMachine) -> None:
    files = {
        "C:/Python311/a.dll": forged({"b.dll": ["alpha", "omega"]}),
        "C:/Python311/b.dll": forged(exports=["alpha", "beta"]),
    }

    reason = refusal(windows_machine({}, files), "C:/Python311/a.dll", 127)

    assert reason is not None
    assert reason.code == "missing-symbol"
    assert reason.message == "it needs omega of b.dll, and C:/Python311/b.dll does not have it"


COMPILED = """
__declspec(dllimport) unsigned long GetTickCount(void);
__declspec(dllexport) int two(void) { return GetTickCount() ? 2 : 3; }
int DllMainCRTStartup(void *a, unsigned b, void *c) { return 1; }
"""


def test_a_compiled_dll_has_what_it_exports_and_imports(tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    source, target = tmp_path / "a.c", tmp_path / "two.dll"
    source.write_text(COMPILED, encoding="utf-8")
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu", "-nostdlib")
    command = (*zig, "-shared", "-o", str(target), str(source), "-lkernel32")
    subprocess.run(command, check=True)

    pe = read_pe(str(target))

    assert (pe.machine, pe.soname, pe.needed) == ("x86_64", "two.dll", ("KERNEL32.dll",))
    assert exported_symbols(str(target), ["two", "three"]) == {"two"}
    assert imported_functions(str(target)) == {"KERNEL32.dll": ("GetTickCount",)}

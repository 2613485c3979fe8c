"""What a library says of itself: real ones from cc, and synthetic ones for foreign machines."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host
from mlbackends.libraries.elf import Elf, ElfImage, elf_headers, read_elf
from mlbackends.libraries.symbols import (
    defined_symbols,
    extract_symbols,
    symbol_versions,
    version_definitions,
    version_needs,
)

needs_cc = pytest.mark.skipif(
    shutil.which("cc") is None or sys.platform != "linux", reason="no cc that makes ELF files"
)
needs_readelf = pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf")

SOURCE = """
int answer = 42;
int first(void) { return 1; }
__attribute__((weak)) int weak_one(void) { return 2; }
__attribute__((visibility("hidden"))) int hidden_one(void) { return 3; }
__thread int per_thread;
extern int defined_elsewhere(void);
int calls_out(void) { return defined_elsewhere() + hidden_one(); }
"""


def compile_library(folder: Path, *options: str, source: str = SOURCE, name: str = "x.so") -> str:
    (folder / "source.c").write_text(source)
    library = folder / name
    command = ["cc", "-shared", "-fPIC", "-nostdlib", "-o", str(library), str(folder / "source.c")]
    subprocess.run([*command, *options], check=True, capture_output=True)
    return str(library)


# ---- real libraries ---------------------------------------------------------


@needs_cc
@pytest.mark.parametrize(("option", "field"), [("enable", "runpath"), ("disable", "rpath")])
def test_rpath_and_runpath_are_told_apart(tmp_path: Path, option: str, field: str) -> None:
    library = compile_library(tmp_path, f"-Wl,--{option}-new-dtags", "-Wl,-rpath,$ORIGIN/../lib:/opt/lib")
    elf = read_elf(library)
    other = {"runpath": "rpath", "rpath": "runpath"}[field]
    assert getattr(elf, field) == ("$ORIGIN/../lib", "/opt/lib")
    assert getattr(elf, other) == ()


@needs_cc
def test_an_empty_directory_in_a_runpath_is_the_current_one(tmp_path: Path) -> None:
    library = compile_library(tmp_path, "-Wl,--enable-new-dtags", "-Wl,-rpath,/a::/b")
    assert read_elf(library).runpath == ("/a", ".", "/b")


@needs_cc
def test_a_runpath_longer_than_one_read_is_whole(tmp_path: Path) -> None:
    directories = tuple(f"/opt/{number:0100d}" for number in range(60))
    library = compile_library(tmp_path, "-Wl,--enable-new-dtags", f"-Wl,-rpath,{':'.join(directories)}")
    assert read_elf(library).runpath == directories


@needs_cc
def test_names_far_apart_in_a_big_string_table_are_read(tmp_path: Path) -> None:
    source = "".join(f"int symbol_{number:0150d};\n" for number in range(3000))
    library = compile_library(tmp_path, "-Wl,-soname,libbig.so", source=source)
    assert os.path.getsize(library) > 400_000
    assert read_elf(library).soname == "libbig.so"
    wanted = {f"symbol_{number:0150d}" for number in (0, 1234, 2999, 3000)}
    assert len(defined_symbols(library, wanted)) == 3


@needs_cc
@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_only_what_other_libraries_can_use_counts_as_defined(tmp_path: Path, style: str) -> None:
    library = compile_library(tmp_path, f"-Wl,--hash-style={style}")
    others = {"hidden_one", "defined_elsewhere", "absent", "firs", "first_", "fïrst", "\ud800", ""}
    usable = {"answer", "first", "weak_one", "calls_out", "per_thread"}
    assert defined_symbols(library, usable | others) == usable


@needs_cc
@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_every_symbol_of_a_library_with_many_is_found(tmp_path: Path, style: str) -> None:
    names = [f"function_{number}" for number in range(500)]
    source = "".join(f"void {name}(void) {{}}\n" for name in names)
    library = compile_library(tmp_path, f"-Wl,--hash-style={style}", source=source)
    absent = [f"missing_{number}" for number in range(500)]
    assert defined_symbols(library, names + absent) == frozenset(names)


@needs_cc
def test_version_definitions_keep_their_order_and_leave_the_base_out(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("GOMP_2.0 { global: first; };\nGOMP_1.0 { global: answer; } GOMP_2.0;\n")
    library = compile_library(
        tmp_path, "-Wl,-soname,libgomp.so.1", f"-Wl,--version-script={tmp_path / 'map'}"
    )
    assert version_definitions(library) == ("GOMP_2.0", "GOMP_1.0")
    assert defined_symbols(library, ["first", "answer"]) == {"first", "answer"}


@needs_cc
def test_a_library_without_section_headers_is_read_the_same(tmp_path: Path) -> None:
    library = compile_library(tmp_path, "-Wl,-soname,libx.so.1")
    before = read_elf(library)
    content = bytearray(Path(library).read_bytes())
    word_bytes = struct.calcsize("P")
    sections_at, counts_at = (40, 58) if word_bytes == 8 else (32, 46)
    content[sections_at : sections_at + word_bytes] = bytes(word_bytes)
    content[counts_at : counts_at + 6] = bytes(6)
    Path(library).write_bytes(content)
    assert read_elf(library) == before


@needs_cc
def test_a_name_that_is_not_utf_8_is_the_one_the_file_system_would_give(tmp_path: Path) -> None:
    library = compile_library(tmp_path, "-Wl,-soname,libQQ.so")
    content = Path(library).read_bytes()
    Path(library).write_bytes(content.replace(b"libQQ.so", b"lib\xff\xfe.so"))
    assert read_elf(library).soname == os.fsdecode(b"lib\xff\xfe.so")


@needs_cc
def test_a_library_cut_short_says_so(tmp_path: Path) -> None:
    library = compile_library(tmp_path)
    os.truncate(library, os.path.getsize(library) // 4)
    with pytest.raises(NotALibrary, match="cut short"):
        read_elf(library)


@needs_cc
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's loader")
def test_a_cut_within_the_last_page_is_filled_with_zeros_as_the_loader_does(tmp_path: Path) -> None:
    library = compile_library(tmp_path, "-Wl,-soname,libwhole.so", source="int whole[16] = {1};")
    with ElfImage(library) as image:
        before = image.described()
        end = max(offset + size for kind, offset, _, size in image.segments if kind == 1)
    os.truncate(library, end - 4)

    subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({library!r})"], check=True)
    with ElfImage(library) as image:
        assert image.described() == before
    with pytest.raises(NotALibrary, match="cut short"):
        read_elf(library)  # which does not vouch for it
    os.truncate(library, end // 4096 * 4096)
    with pytest.raises(NotALibrary, match="cut short"):
        ElfImage(library)


@needs_cc
def test_an_object_file_is_told_from_a_library(tmp_path: Path) -> None:
    (tmp_path / "source.c").write_text(SOURCE)
    command = ["cc", "-c", "-o", str(tmp_path / "x.o"), str(tmp_path / "source.c")]
    subprocess.run(command, check=True)
    with pytest.raises(NotALibrary, match="object file that is not linked yet"):
        read_elf(str(tmp_path / "x.o"))


@needs_cc
@pytest.mark.skipif(shutil.which("objcopy") is None, reason="no objcopy")
def test_a_separate_debug_file_is_not_taken_for_the_library(tmp_path: Path) -> None:
    library = compile_library(tmp_path, "-g", "-Wl,-soname,libx.so.1")
    debug = str(tmp_path / "x.debug")
    subprocess.run(["objcopy", "--only-keep-debug", library, debug], check=True)
    with pytest.raises(NotALibrary):
        read_elf(debug)


def libraries_of_this_python() -> list[str]:
    """List the interpreter, its own library, and every library it has mapped by now."""
    found = {os.path.realpath(sys.executable)}
    library_folder = sysconfig.get_config_var("LIBDIR")
    library_name = sysconfig.get_config_var("INSTSONAME")
    if library_folder and library_name:
        found.add(os.path.join(library_folder, library_name))
    if os.path.exists("/proc/self/maps"):
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        found |= set(re.findall(r"(/\S+\.so\S*)$", maps, re.MULTILINE))
    return sorted(path for path in found if os.path.isfile(path))[:40]


def readelf(option: str, path: str) -> str:
    environment = os.environ | {"LC_ALL": "C"}
    return subprocess.run(
        ["readelf", "-W", option, path],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        errors="replace",
    ).stdout


@needs_readelf
@pytest.mark.skipif(sys.platform != "linux", reason="its libraries are not ELF files")
def test_readelf_agrees_on_the_libraries_of_this_python() -> None:
    paths = libraries_of_this_python()
    assert paths
    for path in paths:
        dynamic = readelf("-d", path)
        elf = read_elf(path)
        assert list(elf.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic), path
        assert [elf.soname] == (re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) or [""]), path
        assert [":".join(elf.rpath)] == (re.findall(r"\(RPATH\).*\[(.*)\]", dynamic) or [""]), path
        assert [":".join(elf.runpath)] == (re.findall(r"\(RUNPATH\).*\[(.*)\]", dynamic) or [""]), path


@needs_readelf
@pytest.mark.skipif(sys.platform != "linux", reason="its libraries are not ELF files")
def test_readelf_agrees_on_the_symbols_and_versions_of_this_pythons_libraries() -> None:
    for path in libraries_of_this_python()[:12]:
        defined: set[str] = set()
        undefined: set[str] = set()
        for line in readelf("--dyn-syms", path).splitlines():
            fields = re.sub(r"\[.*?\]", "", line).split()  # as [VARIANT_PCS] of AArch64
            if len(fields) >= 8 and fields[0].rstrip(":").isdigit() and fields[4] != "LOCAL":
                name = fields[7].partition("@")[0]
                (undefined if fields[6] == "UND" else defined).add(name)
        named = defined | undefined
        assert defined_symbols(path, named) == defined, path
        listed = re.findall(r"Rev: \d+ +Flags: (\w+) +.*Name: (\S+)", readelf("-V", path))
        assert list(version_definitions(path)) == [name for flags, name in listed if flags != "BASE"], path
        needs: dict[str, list[str]] = {}
        file = ""
        section = readelf("-V", path).partition("Version needs section")[2]
        for line in section.partition("Version definition section")[0].splitlines():
            if named_file := re.search(r"File: (\S+)", line):
                file = named_file[1]
            elif needed := re.search(r"Name: (\S+)", line):
                needs.setdefault(file, []).append(needed[1])
        assert {name: list(need) for name, need in version_needs(path).items()} == needs, path


# ---- machines that are not this one -----------------------------------------


class Form(NamedTuple):
    bits: int
    order: str


FORMS = [Form(bits, order) for bits in (32, 64) for order in "<>"]
every_form = pytest.mark.parametrize(
    "form", FORMS, ids=[f"{f.bits}-{'little' if f.order == '<' else 'big'}" for f in FORMS]
)


NEEDS = {"libc.so.6": ("GLIBC_2.17", "GLIBC_2.28"), "libstdc++.so.6": ("GLIBCXX_3.4.29",)}


def synthetic_library(
    form: Form, machine: int, *, address: int = 0x10000, needs: dict[str, tuple[str, ...]] = NEEDS
) -> bytes:
    """Build "libsynthetic.so.2", which needs "libneeded.so" and defines `alpha` and `beta`.

    One load segment, at an address other than its offset; a note, a System V hash table with a
    single bucket, one version definition after the base one, and the versions that it needs.
    """
    order, word = form.order, "Q" if form.bits == 64 else "I"

    def pack(layout: str, *values: int) -> bytes:
        return struct.pack(order + layout.replace("W", word), *values)

    strings = b"\0alpha\0beta\0undefined\0libsynthetic.so.2\0libneeded.so\0/one:/two\0VERSION_1\0"
    for library, names in needs.items():
        strings += "".join(f"{name}\0" for name in (library, *names)).encode()

    def at(text: bytes) -> int:
        return strings.index(b"\0" + text + b"\0") + 1

    def symbol(name: int, section: int) -> bytes:
        if form.bits == 64:
            return pack("IBBHQQ", name, 0x12, 0, section, 0x40 if section else 0, 4)
        return pack("IIIBBH", name, 0x40 if section else 0, 4, 0x12, 0, section)

    symbols = bytes(len(symbol(0, 0))) + symbol(at(b"alpha"), 1)
    symbols += symbol(at(b"undefined"), 0) + symbol(at(b"beta"), 1)
    hash_word = "Q" if machine == 22 and form.bits == 64 else "I"
    table = pack(hash_word * 7, 1, 4, 1, 0, 2, 3, 0)
    note = pack("III", 4, 3, 3) + b"GNU\0" + b"\xab\xcd\xef\0"
    versions = pack("HHHHIII", 1, 1, 1, 1, 0, 20, 28) + pack("II", at(b"libsynthetic.so.2"), 0)
    versions += pack("HHHHIII", 1, 0, 2, 1, 0, 20, 0) + pack("II", at(b"VERSION_1"), 0)
    needed = b""
    for number, (library, names) in enumerate(needs.items(), 1):
        following = 16 + 16 * len(names) if number < len(needs) else 0
        needed += pack("HHIII", 1, len(names), at(library.encode()), 16, following)
        for index, name in enumerate(names, 1):
            needed += pack("IHHII", 0, 0, index + 1, at(name.encode()), 16 if index < len(names) else 0)

    header_size, segment_size = (64, 56) if form.bits == 64 else (52, 32)
    start = header_size + 3 * segment_size
    start += -start % 8
    pieces, positions = bytearray(), {}
    named = {"note": note, "hash": table, "symbols": symbols, "strings": strings}
    for name, piece in (named | {"versions": versions, "needs": needed}).items():
        positions[name] = start + len(pieces)
        pieces += piece + bytes(-len(piece) % 8)
    dynamic = b"".join(
        pack("WW", tag, value)
        for tag, value in [
            (1, at(b"libneeded.so")),
            (14, at(b"libsynthetic.so.2")),
            (15, at(b"/one:/two")),
            (4, address + positions["hash"]),
            (5, address + positions["strings"]),
            (6, address + positions["symbols"]),
            (10, len(strings)),
            (0x6FFFFFFC, address + positions["versions"]),
            (0x6FFFFFFD, 2),
            *([(0x6FFFFFFE, address + positions["needs"])] if needs else []),
            (0x6FFFFFFF, len(needs)),
            (0, 0),
        ]
    )
    dynamic_at = start + len(pieces)
    size = dynamic_at + len(dynamic)

    def segment(kind: int, offset: int, length: int) -> bytes:
        if form.bits == 64:
            return pack("IIQQQQQQ", kind, 4, offset, address + offset, 0, length, length, 4)
        return pack("IIIIIIII", kind, offset, address + offset, 0, length, length, 4, 4)

    identity = b"\x7fELF" + bytes([form.bits // 32, 1 if order == "<" else 2, 1]) + bytes(9)
    header = identity + pack("HHIWWWI", 3, machine, 1, 0, header_size, 0, 0)
    header += pack("HHHHHH", header_size, segment_size, 3, 0, 0, 0)
    header += segment(1, 0, size) + segment(4, positions["note"], len(note))
    header += segment(2, dynamic_at, len(dynamic))
    return header.ljust(start, b"\0") + pieces + dynamic


@every_form
def test_any_word_size_and_byte_order_is_read(tmp_path: Path, form: Form) -> None:
    library = tmp_path / "x.so"
    library.write_bytes(synthetic_library(form, 0xFEED))
    assert read_elf(str(library)) == Elf(
        machine="machine-65261",
        soname="libsynthetic.so.2",
        needed=("libneeded.so",),
        rpath=("/one", "/two"),
        runpath=(),
    )
    names = ["alpha", "beta", "undefined", "gamma"]
    assert defined_symbols(str(library), names) == {"alpha", "beta"}
    assert version_definitions(str(library)) == ("VERSION_1",)
    assert version_needs(str(library)) == NEEDS


@pytest.mark.parametrize(
    ("number", "bits", "order", "machine"),
    [
        (62, 64, "<", "x86_64"),
        (62, 32, "<", "x32"),
        (3, 32, "<", "i386"),
        (183, 64, "<", "aarch64"),
        (40, 32, "<", "arm"),
        (21, 64, "<", "ppc64le"),
        (21, 64, ">", "ppc64"),
        (22, 64, ">", "s390x"),
        (22, 32, ">", "s390"),
        (243, 64, "<", "riscv64"),
        (258, 64, "<", "loongarch64"),
        (0, 64, "<", "machine-0"),
    ],
)
def test_a_machine_has_the_name_its_users_know(
    tmp_path: Path, number: int, bits: int, order: str, machine: str
) -> None:
    (tmp_path / "x.so").write_bytes(synthetic_library(Form(bits, order), number))
    assert read_elf(str(tmp_path / "x.so")).machine == machine


def test_the_wide_hash_table_of_s390x_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(synthetic_library(Form(64, ">"), 22))
    assert defined_symbols(str(tmp_path / "x.so"), ["alpha", "gamma"]) == {"alpha"}


def test_a_hash_chain_that_loops_is_damage_and_not_an_endless_search(tmp_path: Path) -> None:
    content = synthetic_library(Form(64, "<"), 62)
    table = struct.pack("<7I", 1, 4, 1, 0, 2, 3, 0)
    looping = struct.pack("<7I", 1, 0xFFFFFFFF, 1, 0, 1, 1, 0)
    assert content.count(table) == 1
    (tmp_path / "x.so").write_bytes(content.replace(table, looping))
    with pytest.raises(NotALibrary, match="has no end"):
        defined_symbols(str(tmp_path / "x.so"), ["gamma"])


def test_a_library_that_needs_absurdly_many_is_damaged(tmp_path: Path) -> None:
    content = synthetic_library(Form(64, "<"), 62)
    # The dynamic section moves to the end of the file and grows.
    longer = content + struct.pack("<QQ", 1, 1) * 5000
    segment = content.index(struct.pack("<II", 2, 4))
    patched = bytearray(longer)
    struct.pack_into("<Q", patched, segment + 8, len(content))
    struct.pack_into("<Q", patched, segment + 32, 5000 * 16)
    (tmp_path / "x.so").write_bytes(patched)
    with pytest.raises(NotALibrary, match="needs more libraries"):
        read_elf(str(tmp_path / "x.so"))


# ---- what is no library -----------------------------------------------------


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"),
        (bytes(8192), "zeros"),
        (b"\xcf\xfa\xed\xfe" + bytes(60), "a Mach-O file"),
        (b"\xca\xfe\xba\xbe\0\0\0\2" + bytes(60), "a Mach-O file"),
        (b"MZ\x90\0" + bytes(60), "a Windows DLL (PE)"),
        (b"!<arch>\nx.o/", "a static library"),
        (b"/* GNU ld script */\nGROUP ( libx.so.1 )\n", "a text file (linker script)"),
        (b"INPUT(-ltinfo)\n", "a text file (linker script)"),
        (b"hello\n", "a text file,"),
        (b"#!/bin/sh\n", "a script"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"\x89\x01\0\xff" * 9, "of an unknown format"),
        (b"\x7fELF", "word size or byte order"),
        (b"\x7fELF\x02\x01\x01", "cut short"),
        (b"\x7fELF\x03\x01\x01" + bytes(60), "word size or byte order"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "unknown type"),
    ],
)
def test_a_file_that_is_no_library_is_named_for_what_it_is(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "x.so").write_bytes(content)
    with pytest.raises(NotALibrary, match=re.escape(what)):
        read_elf(str(tmp_path / "x.so"))


def test_a_folder_a_pipe_and_a_device_are_refused_without_waiting(tmp_path: Path) -> None:
    paths = [str(tmp_path)]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        paths += [str(tmp_path / "pipe"), os.devnull]
    for path in paths:
        with pytest.raises(NotALibrary, match="the path leads to"):
            read_elf(path)


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_elf(str(tmp_path / "absent.so"))


@pytest.mark.parametrize("path", ["a\0b", *["a\ud800b"] * (os.name != "nt")])
def test_a_path_that_no_file_can_have_is_no_library(path: str) -> None:
    with pytest.raises(NotALibrary, match="no file name can have"):
        read_elf(path)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of open files")
def test_no_file_stays_open(tmp_path: Path) -> None:
    (tmp_path / "good.so").write_bytes(synthetic_library(Form(64, "<"), 62))
    (tmp_path / "bad.so").write_bytes(b"\x7fELF\x02\x01" + bytes(500))
    before = os.listdir("/proc/self/fd")
    read_elf(str(tmp_path / "good.so"))
    defined_symbols(str(tmp_path / "good.so"), ["alpha"])
    version_definitions(str(tmp_path / "good.so"))
    with pytest.raises(NotALibrary):
        read_elf(str(tmp_path / "bad.so"))
    assert os.listdir("/proc/self/fd") == before


# ---- damage -----------------------------------------------------------------


def read_everything(path: str) -> None:
    """Read all there is; only the exceptions that the module promises may come out."""
    for read in (
        read_elf,
        version_definitions,
        lambda library: defined_symbols(library, ["alpha", "beta", "first", "answer", "absent"]),
    ):
        with contextlib.suppress(NotALibrary, OSError):
            read(path)


random_damage = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def small_libraries(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Synthetic libraries of every form and, where there is a compiler, two real ones."""
    libraries = [synthetic_library(form, 62) for form in FORMS]
    if shutil.which("cc") and sys.platform == "linux":
        folder = tmp_path_factory.mktemp("small")
        for style in ("gnu", "sysv"):
            options = ("-Wl,-soname,libx.so.1", f"-Wl,--hash-style={style}", "-s")
            libraries.append(Path(compile_library(folder, *options)).read_bytes())
    return libraries


@random_damage
@given(data=st.data())
def test_a_library_cut_anywhere_is_survived(
    tmp_path: Path, small_libraries: list[bytes], data: st.DataObject
) -> None:
    content = data.draw(st.sampled_from(small_libraries))
    (tmp_path / "x.so").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    read_everything(str(tmp_path / "x.so"))


@random_damage
@given(data=st.data())
def test_bytes_changed_anywhere_are_survived(
    tmp_path: Path, small_libraries: list[bytes], data: st.DataObject
) -> None:
    content = bytearray(data.draw(st.sampled_from(small_libraries)))
    # Half of the damage goes where the headers are, which is where it hurts.
    places = st.one_of(st.integers(0, len(content) - 1), st.integers(0, 300))
    values = st.one_of(st.integers(0, 255), st.sampled_from([0, 0x7F, 0x80, 0xFF]))
    for place, value in data.draw(st.lists(st.tuples(places, values), min_size=1, max_size=12)):
        content[place % len(content)] = value
    (tmp_path / "x.so").write_bytes(content)
    read_everything(str(tmp_path / "x.so"))


@random_damage
@given(content=st.binary(max_size=2000))
def test_random_bytes_after_the_magic_number_are_survived(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(b"\x7fELF" + content)
    read_everything(str(tmp_path / "x.so"))


# ---- versions that are needed ---------------------------------------------------------------------


def test_a_library_that_needs_no_versions_lists_none(tmp_path: Path) -> None:
    path = tmp_path / "liba.so"
    path.write_bytes(synthetic_library(Form(64, "<"), 62, needs={}))

    assert version_needs(str(path)) == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 2000), byte=st.integers(0, 255))
def test_damaged_needs_are_no_library_or_few_names(tmp_path: Path, at: int, byte: int) -> None:
    content = bytearray(synthetic_library(Form(64, "<"), 62))
    content[at % len(content)] = byte
    path = tmp_path / "liba.so"
    path.write_bytes(content)

    try:
        needs = version_needs(str(path))
    except NotALibrary:
        return
    assert sum(map(len, needs.values())) <= 4096


def test_a_host_may_have_the_headers_and_no_file(tmp_path: Path) -> None:
    headers = Elf("x86_64", "liba.so", ("libc.so.6",), (), ())
    extracts = {
        "/liba.so": {
            "read_elf": msgspec.to_builtins(headers),
            "version_needs": NEEDS,
            "version_definitions": ["A_1"],
            "defined_symbols": {"alpha": True, "beta": False},
        },
        "/script": {"read_elf": "the file is a script, not an ELF library"},
        "/senseless": {"read_elf": {"machine": 3}},
    }
    (tmp_path / "root" / "lib").mkdir(parents=True)
    (tmp_path / "host.json").write_text("{}")
    (tmp_path / "extracts.json").write_bytes(msgspec.json.encode(extracts))
    host = Host(str(tmp_path))

    assert elf_headers(host, "/liba.so") == headers
    assert host.extracted("/liba.so", version_needs, dict[str, tuple[str, ...]]) == NEEDS
    assert symbol_versions(host, "/liba.so") == ("A_1",)
    assert extract_symbols(host, "/liba.so", ("alpha", "beta", "gamma")) == {"alpha"}
    with pytest.raises(NotALibrary, match="is a script"):
        elf_headers(host, "/script")
    for path in ("/senseless", "/absent"):
        with pytest.raises(FileNotFoundError):
            elf_headers(host, path)


@needs_cc
def test_a_library_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "liba.so"
    for name in ("liba.so.1", "liba.so.2"):
        made = tmp_path / f"{name}.new"
        command = ["cc", "-shared", "-xc", "-", f"-Wl,-soname,{name}", "-o", str(made)]
        subprocess.run(command, input=b"int a;", check=True)
        made.replace(path)

        assert read_elf(str(path)).soname == name
        assert read_elf(str(path)).soname == name


@needs_cc
def test_a_library_that_is_replaced_while_it_is_opened_is_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (compile_library(tmp_path, f"-Wl,-soname,{name}", name=name) for name in ("a.so", "b.so"))
    assert read_elf(old).soname == "a.so"
    status, stat = os.stat(old), os.stat
    os.replace(new, old)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda path: status if path == old else stat(path))
        soname = read_elf(old).soname

    assert soname == "b.so"

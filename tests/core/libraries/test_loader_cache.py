"""The loader's cache: what ldconfig writes, every layout of it, and damage."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends.libraries.loader_cache import CacheEntry, architecture_of, read_cache

X86_64 = 0x0303
HWCAP_IS_SUBDIRECTORY = 1 << 62


def new_cache(
    rows: list[tuple[str, str, int, int]],
    *,
    order: str = "<",
    mark: int | None = None,
    subdirectories: tuple[str, ...] = (),
    start: int = 0,
    strings_from: int = 0,
) -> bytes:
    """Build a cache of rows (soname, path, flags, hwcap) as ldconfig 2.33 and newer lay it out.

    `start` is where it will lie in its file; `strings_from` is where the names of the
    subdirectories count their positions from.
    """
    strings = bytearray()
    strings_at = 48 + 24 * len(rows)

    def position(text: str) -> int:
        strings.extend(os.fsencode(text) + b"\0")
        return strings_at + len(strings) - len(os.fsencode(text)) - 1

    table = b"".join(
        struct.pack(order + "IIIIQ", flags, position(soname), position(path), 0, hwcap)
        for soname, path, flags, hwcap in rows
    )
    names = [start - strings_from + position(name) for name in subdirectories]
    strings += bytes(-(strings_at + len(strings)) % 4)
    extension_at = start + strings_at + len(strings)
    extension = struct.pack(order + "II", 0xEAA42174, 2)
    extension += struct.pack(order + "IIII", 0, 0, extension_at + 40 + 4 * len(names), 7)
    extension += struct.pack(order + "IIII", 1, 0, extension_at + 40, 4 * len(names))
    extension += struct.pack(f"{order}{len(names)}I", *names) + b"written"
    byte_order_mark = {"<": 2, ">": 3}[order] if mark is None else mark
    header = struct.pack(
        order + "20sIIB3xI12x",
        b"glibc-ld.so.cache1.1",
        len(rows),
        len(strings),
        byte_order_mark,
        extension_at if subdirectories else 0,
    )
    return header + table + strings + (extension if subdirectories else b"")


def old_cache(rows: list[tuple[str, str, int]], *, order: str = "<", strings: bool = True) -> bytes:
    """Build a cache of rows (soname, path, flags) as glibc 2.0 did."""
    texts, table = bytearray(), bytearray()
    for soname, path, flags in rows:
        table += struct.pack(order + "III", flags, len(texts), len(texts) + len(soname) + 1)
        texts += f"{soname}\0{path}\0".encode()
    header = struct.pack(order + "11sxI", b"ld.so-1.7.0", len(rows))
    return header + table + (texts if strings else b"")


# ---- layouts ----------------------------------------------------------------


@pytest.mark.parametrize("order", "<>")
def test_entries_keep_the_order_of_the_cache(order: str) -> None:
    rows = [("libz.so.1", "/lib/libz.so.1", X86_64, 0), ("liba.so", "/usr/lib/liba.so", 3, 0)]
    assert read_cache(new_cache(rows, order=order)) == [
        CacheEntry("libz.so.1", "/lib/libz.so.1", X86_64),
        CacheEntry("liba.so", "/usr/lib/liba.so", 3),
    ]


@pytest.mark.parametrize("order", "<>")
def test_a_cache_that_does_not_tell_its_byte_order_is_read_by_what_fits(order: str) -> None:
    cache = new_cache([("liba.so", "/lib/liba.so", X86_64, 0)], order=order, mark=0)
    assert [entry.path for entry in read_cache(cache)] == ["/lib/liba.so"]


def test_a_cache_marked_broken_has_no_entries() -> None:
    assert read_cache(new_cache([("liba.so", "/lib/liba.so", X86_64, 0)], mark=1)) == []


@pytest.mark.parametrize("order", "<>")
def test_a_library_for_newer_processors_is_in_a_subdirectory(order: str) -> None:
    path = "/lib/glibc-hwcaps/x86-64-v3/liba.so"
    level_three = 3 << 32
    rows = [
        ("liba.so", path, X86_64, HWCAP_IS_SUBDIRECTORY | level_three | 1),
        ("liba.so", "/lib/liba.so", X86_64, 0),
    ]
    cache = new_cache(rows, order=order, subdirectories=("x86-64-v2", "x86-64-v3"))
    assert [entry.path for entry in read_cache(cache)] == [path, "/lib/liba.so"]


@pytest.mark.parametrize("order", "<>")
def test_the_layout_of_glibc_2_0_is_read(order: str) -> None:
    rows = [("liba.so.1", "/lib/liba.so.1", 3), ("libb.so", "/lib/libb.so", X86_64)]
    assert read_cache(old_cache(rows, order=order)) == [
        CacheEntry("liba.so.1", "/lib/liba.so.1", 3),
        CacheEntry("libb.so", "/lib/libb.so", X86_64),
    ]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("positions_count_from_the_newer", [False, True])
def test_the_newer_layout_after_the_older_is_the_one_that_counts(
    order: str, count: int, positions_count_from_the_newer: bool
) -> None:
    old = old_cache([("libold.so", "/lib/libold.so", 3)] * count, order=order, strings=False)
    old += bytes(-len(old) % 8)
    path = "/lib/glibc-hwcaps/power10/liba.so"
    rows = [("liba.so", path, 0x0503, HWCAP_IS_SUBDIRECTORY)]
    new = new_cache(
        rows,
        order=order,
        subdirectories=("power10",),
        start=len(old),
        # ldconfig 2.36 -c compat writes them so, and its own -p then prints nonsense.
        strings_from=len(old) if positions_count_from_the_newer else 0,
    )
    assert read_cache(old + new) == [CacheEntry("liba.so", path, 0x0503)]


@pytest.mark.skipif(os.name == "nt", reason="a path of Windows is no text of bytes")
def test_a_path_that_is_not_utf_8_is_the_one_the_file_system_would_give() -> None:
    path = os.fsdecode(b"/lib/\xff/liba.so")
    (entry,) = read_cache(new_cache([("liba.so", path, X86_64, 0)]))
    assert os.fsencode(entry.path) == b"/lib/\xff/liba.so"


def test_an_entry_whose_names_lie_outside_the_file_is_left_out() -> None:
    cache = bytearray(new_cache([("liba.so", "/lib/liba.so", X86_64, 0)] * 2))
    struct.pack_into("<I", cache, 48 + 4, 0xFFFFFFF0)
    assert len(read_cache(bytes(cache))) == 1


# ---- architectures ----------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "architecture"),
    [
        (0x0303, "x86_64"),
        (0x0403, "s390x"),
        (0x0803, "x32"),
        (0x0903, "arm"),
        (0x0A03, "aarch64"),
        (0x0B03, "arm"),
        (0x0F03, "riscv64"),
        (0x1003, "riscv64"),
        (0x1203, "loongarch64"),
        (0x0003, ""),
        (0x0001, ""),
        (0xEE03, ""),
    ],
)
def test_flags_tell_the_architecture(flags: int, architecture: str) -> None:
    assert architecture_of(flags) == architecture


def test_powerpc_is_told_by_the_byte_order_of_the_cache() -> None:
    assert architecture_of(0x0503, little_endian=True) == "ppc64le"
    assert architecture_of(0x0503, little_endian=False) == "ppc64"


# ---- the real thing ---------------------------------------------------------


@pytest.fixture
def ldconfig() -> str:
    found = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None or sys.platform != "linux":
        pytest.skip("no ldconfig here")
    return found


def printed_by(ldconfig: str, cache: Path | str) -> list[tuple[str, str]]:
    """List the (soname, path) that "ldconfig -p" prints."""
    command = [ldconfig, "-p", "-C", str(cache)]
    printed = subprocess.run(command, capture_output=True, check=False)
    text = os.fsdecode(printed.stdout)
    return re.findall(r"^\t(.*?) \(.*\) => (.*)$", text, re.MULTILINE)


def test_ldconfig_agrees_on_the_cache_of_this_machine(ldconfig: str) -> None:
    if not os.path.exists("/etc/ld.so.cache"):
        pytest.skip("no cache here")
    entries = read_cache(Path("/etc/ld.so.cache").read_bytes())
    assert [(entry.soname, entry.path) for entry in entries] == printed_by(ldconfig, "/etc/ld.so.cache")


@pytest.mark.parametrize("layout", ["new", "compat", "old"])
def test_every_layout_that_ldconfig_writes_is_read(tmp_path: Path, ldconfig: str, layout: str) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no cc here")
    # In a root of its own, ldconfig neither sees nor touches anything of this machine.
    folder, subdirectory = tmp_path / "lib", "glibc-hwcaps/x86-64-v3"
    (folder / subdirectory).mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.conf").write_text("/lib\n")
    (tmp_path / "x.c").write_text("int one(void) { return 1; }")
    for name in ("liba.so.1", "libb.so.1"):
        options = ["-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{name}"]
        command = ["cc", *options, "-o", str(folder / name), str(tmp_path / "x.c")]
        subprocess.run(command, check=True)
    shutil.copy(folder / "liba.so.1", folder / subdirectory)
    command = [ldconfig, "-X", "-c", layout, "-r", str(tmp_path)]
    subprocess.run(command, check=False, capture_output=True)
    cache = tmp_path / "etc/ld.so.cache"
    if not cache.exists():
        pytest.skip(f"this ldconfig does not write the layout {layout!r}")

    entries = read_cache(cache.read_bytes())

    assert [(entry.soname, entry.path) for entry in entries] == printed_by(ldconfig, cache)
    assert {"/lib/liba.so.1", "/lib/libb.so.1"} <= {entry.path for entry in entries}


# ---- damage -----------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ld.so-1.7.0",
        b"glibc-ld.so.cache1.1",
        b"glibc-ld.so.cache1.2" + bytes(100),
        bytes(4096),
        b"\x7fELF" + bytes(100),
        b"glibc-ld.so.cache1.1" + b"\xff" * 100,
        b"ld.so-1.7.0\0" + b"\xff" * 100,
    ],
)
def test_what_is_no_cache_has_no_entries(data: bytes) -> None:
    assert read_cache(data) == []


NEW = new_cache(
    [
        ("liba.so", "/lib/glibc-hwcaps/x86-64-v3/liba.so", X86_64, HWCAP_IS_SUBDIRECTORY),
        ("liba.so", "/lib/liba.so", X86_64, 0),
    ],
    subdirectories=("x86-64-v3",),
)
OLD = old_cache([("liba.so", "/lib/liba.so", 3), ("libb.so", "/lib/libb.so", 3)])
OLD_THEN_NEW = old_cache([("liba.so", "/lib/liba.so", 3)], strings=False) + bytes(4) + NEW


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_damage_anywhere_is_survived(data: st.DataObject) -> None:
    cache = bytearray(data.draw(st.sampled_from([NEW, OLD, OLD_THEN_NEW])))
    places = st.integers(0, len(cache) - 1)
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=8)):
        cache[place] = value
    cut = bytes(cache[: data.draw(st.integers(0, len(cache)))])
    for entry in read_cache(cut):
        assert entry.soname
        assert entry.path.encode("utf-8", "surrogateescape") in cut

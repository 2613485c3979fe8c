"""An archive of a recorded machine: it answers as its folder does, is text, and must be sound."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput
from mlbackends.host import archive
from mlbackends.host.archive import NOT_IN_WINDOWS, Tree, is_archive, read
from mlbackends.host.host import Host

NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name not in (".", "..") and "/" not in name)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def machine() -> Tree:
    """Compose a machine that has of everything."""
    tree = Tree()
    tree.put("host.json", b'{"sizes": {"/usr/lib/libx.so": 7000}}\n')
    tree.put("commands/sysctl -a", b"hw.ncpu: 8\n")
    tree.put("root/proc/version", b"Linux version 6.1.0\n")
    tree.put("root/proc/device-tree/model", b"Raspberry Pi 5\0")
    tree.put("root/usr/lib/libx.so", b"\x7fELF\xff")
    tree.put("root/sys/bus/pci/devices/0000:00:02.0/vendor", b"0x8086\n")
    tree.put("root/sys/class/drm/card0", "../../bus/pci/devices/0000:00:02.0")
    tree.put("root/sys/class/drm/Card0", b"")
    tree.put("root/sys/class/net", set())
    return tree


def packed(tree: Tree, folder: str = "", *, is_zipped: bool = False) -> bytes:
    """Return a tree as a tar, in a folder of it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path, entry in tree.entries.items():
            member = tarfile.TarInfo(f"{folder}{path}" or ".")
            if isinstance(entry, bytes):
                member.size = len(entry)
                tar.addfile(member, io.BytesIO(entry))
                continue
            member.type = tarfile.DIRTYPE if isinstance(entry, set) else tarfile.SYMTYPE
            member.linkname = entry if isinstance(entry, str) else ""
            tar.addfile(member)
    return gzip.compress(content.getvalue()) if is_zipped else content.getvalue()


def text_of(*lines: str) -> bytes:
    return "\n".join(["backends.machine/1", *lines, "end", ""]).encode()


def tar_of(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.addfile(member)
    return content.getvalue()


ARCHIVES = {
    "ours": machine().text(),
    "ours, by gzip": gzip.compress(machine().text()),
    "tar": packed(machine()),
    "tar of the folder": packed(machine(), "laptop/"),
    "tar with ./": packed(machine(), "./"),
    "tar.gz": packed(machine(), "laptop/", is_zipped=True),
}


@pytest.mark.parametrize("content", ARCHIVES.values(), ids=ARCHIVES)
def test_an_archive_is_the_machine(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(content)

    host = Host(str(tmp_path / "it"))

    assert is_archive(str(tmp_path / "it"))
    assert host.read("/proc/version") == "Linux version 6.1.0"
    assert host.read_bytes("/proc/device-tree/model") == b"Raspberry Pi 5\0"
    assert host.read_bytes("/proc/version", 5) == b"Linux"
    assert host.listdir("/sys/class/drm") == ["Card0", "card0"]
    assert (host.listdir("/sys/class/net"), host.is_dir("/sys/class/net")) == ([], True)
    assert host.readlink("/sys/class/drm/card0") == "../../bus/pci/devices/0000:00:02.0"
    assert host.realpath("/sys/class/drm/card0/vendor").endswith("/devices/0000:00:02.0/vendor")
    assert host.glob("/sys/class/drm/card*/vendor") == ["/sys/class/drm/card0/vendor"]
    assert (host.size("/usr/lib/libx.so"), host.size("/proc/version")) == (7000, 20)
    assert host.extracted("/usr/lib/libx.so", _head, bytes) == b"\x7fELF\xff"
    assert host.run("sysctl", "-a") == "hw.ncpu: 8\n"
    assert not host.exists("/proc/nothing") and not host.is_file("/proc")
    assert host.read("/proc") == host.readlink("/proc") == ""
    assert host.root.startswith(os.path.realpath(tmp_path / "it").replace(os.sep, "/"))


def _head(path: str) -> bytes:
    return Path(path).read_bytes()[:8]


def test_it_is_text_in_which_a_change_is_a_line() -> None:
    text = machine().text().decode()

    assert text == machine().text().decode()
    assert text.splitlines()[:3] == [
        "backends.machine/1",
        "file commands/sysctl -a",
        "\thw.ncpu: 8",
    ]
    assert "\nescaped root/proc/device-tree/model\n\tRaspberry Pi 5\\x00\n" in text
    assert "\nlink root/sys/class/drm/card0 -> ../../bus/pci/devices/0000:00:02.0\n" in text
    assert "\nfolder root/sys/class/net\n" in text
    assert text.replace("\n", "").replace("\t", "").isprintable()


@given(
    st.dictionaries(PATHS, st.binary() | st.text().map(str.encode) | st.just("a -> b\n")),
    st.lists(PATHS),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes | str], folders: list[str]
) -> None:
    tree = Tree()
    for path, entry in [*contents.items(), *((folder, set[str]()) for folder in folders)]:
        try:
            tree.put(path, entry)
        except (ValueError, UnicodeEncodeError):  # a file, and a folder of that name
            continue

    text = tree.text()
    file = tmp_path_factory.getbasetemp() / "written.machine"
    file.write_bytes(text)
    again = read(str(file))

    assert {path: entry for path, entry in again.entries.items() if entry} == {
        path: entry for path, entry in tree.entries.items() if entry
    }
    assert again.text() == text


HOSTILE = {
    "an absolute name": (text_of("file /etc/passwd"), "'/etc/passwd' points outside of it"),
    "a name with ..": (text_of("file root/../../x"), "'root/../../x' points outside of it"),
    "an absolute link": (text_of("link root/a -> /etc"), "'root/a -> /etc' points outside of it"),
    "a link that climbs": (text_of("link root/a -> ../../x"), "points outside of it"),
    "a name twice": (text_of("file root/a", "file root/a"), "'root/a' appears twice in it"),
    "a file below a link": (
        text_of("link root/a -> b", "file root/a/c"),
        "'root/a' appears twice in it",
    ),
    "a long name": (text_of("file " + "a/" * 600 + "a"), "is too long for a name"),
    "no name of a kind": (text_of("device root/a"), "line 2 is not a known entry"),
    "content of a link": (text_of("link root/a -> b", "\tx"), "line 2 is not a known entry"),
    "an odd escape": (text_of("escaped root/a", "\t\\N{DIGIT ONE}"), "line 2 is not a known entry"),
    "content of nothing": (text_of("\tx"), "line 2 is not a known entry"),
    "half a string": (text_of('file "root/a'), "Unterminated string"),
    "no text": (b"backends.machine/1\nfile \xff\nend\n", "can't decode byte"),
    "another format": (b"backends.machine/2\nend\n", "this version reads b'backends.machine/1\\n'"),
    "line ends of Windows": (
        machine().text().replace(b"\n", b"\r\n"),
        r"b'backends.machine/1\r\n'",
    ),
    "tar: an absolute name": (tar_of("/etc/passwd"), "'/etc/passwd' points outside of it"),
    "tar: a name with ..": (tar_of("../x"), "'../x' points outside of it"),
    "tar: a link out": (
        tar_of("a", tarfile.SYMTYPE, "../../etc"),
        "'a -> ../../etc' points outside",
    ),
    "tar: a hard link": (
        tar_of("a", tarfile.LNKTYPE, "/etc/passwd"),
        "neither a file, a folder nor",
    ),
    "tar: a device": (tar_of("a", tarfile.CHRTYPE), "neither a file, a folder nor a link"),
    "tar: a FIFO": (tar_of("a", tarfile.FIFOTYPE), "neither a file, a folder nor a link"),
    "tar: truncated": (packed(machine())[:2000], "it is truncated"),
    "gzip: truncated": (ARCHIVES["tar.gz"][:-9], "end-of-stream marker"),
    "gzip: damaged": (b"\x1f\x8b\x08" + bytes(60), "not an archive of a machine"),
    "neither": (b'{"schema": "backends.report/1"}', "not an archive of a machine"),
    "empty": (b"", "not an archive of a machine"),
    "no machine": (text_of("file a"), "it is not a machine description"),
    "host.json as a link": (text_of("folder root/proc", "link host.json -> root"), "is a link"),
}


@pytest.mark.parametrize(("content", "said"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_sound_archive_is_refused_in_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "it.machine"
    path.write_bytes(content)

    with pytest.raises(BadInput) as error:
        Host(str(path))

    assert said in str(error.value)
    assert path.as_posix() in str(error.value).replace("\\", "/")
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path) == ["it.machine"]


def test_of_a_truncated_archive_nothing_is_taken(tmp_path: Path) -> None:
    path, whole = tmp_path / "it", machine().text()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(BadInput):
            read(str(path))


@pytest.mark.parametrize("is_zipped", [False, True])
def test_what_unpacks_to_too_much_is_refused(
    is_zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = machine()
    tree.put("root/zeros", bytes(1 << 20))
    (tmp_path / "it").write_bytes(packed(tree, is_zipped=is_zipped))
    monkeypatch.setattr(archive, "SIZE_LIMIT", 1 << 20)

    with pytest.raises(BadInput, match="it is larger than 1 MiB"):
        read(str(tmp_path / "it"))
    with pytest.raises(ValueError, match="it is larger than 1 MiB"):
        tree.text()


def test_too_many_files_are_refused_be_they_only_folders_on_the_way(tmp_path: Path) -> None:
    deep = archive.ENTRY_LIMIT // 400
    (tmp_path / "it").write_bytes(text_of(*(f"folder {n}{'/a' * 400}" for n in range(deep))))

    with pytest.raises(BadInput, match=f"it contains more than {archive.ENTRY_LIMIT} files"):
        read(str(tmp_path / "it"))


@pytest.mark.parametrize(
    "path",
    [
        "a:b",
        "C:/x",
        r"..\x",
        "a?",
        "nul",
        "a/CON",
        "com1.txt",
        "aux/x",
        "a.",
        "a /b",
        "a\tb",
        'a"b',
    ],
)
def test_windows_has_no_such_names(path: str) -> None:
    assert NOT_IN_WINDOWS.search(path)


@pytest.mark.parametrize("path", ["a/b.c", ".hidden", "console", "a/nulls", "com/1", "a b", "é"])
def test_and_has_these(path: str) -> None:
    assert not NOT_IN_WINDOWS.search(path)


@pytest.mark.skipif(os.name == "nt", reason="the names are those of another system")
@pytest.mark.skipif(os.name == "nt", reason="the names are those of another system")
def test_a_folder_has_what_the_archive_has(tmp_path: Path) -> None:
    machine().unpack(str(tmp_path / "there"))

    there = tmp_path / "there" / "root" / "sys" / "class"
    assert sorted(os.listdir(there)) == ["drm", "net"]
    assert os.readlink(there / "drm" / "card0") == "../../bus/pci/devices/0000:00:02.0"
    assert Host(str(tmp_path / "there")).read_bytes("/proc/device-tree/model") == b"Raspberry Pi 5\0"


def test_what_the_file_system_takes_for_one_name_is_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, join = Tree(), os.path.join
    tree.put("card0", b"")
    tree.put("Card0", b"")

    def lowered(folder: str, *parts: str) -> str:
        return join(folder, *(part.lower() for part in parts))

    with monkeypatch.context() as patch:
        patch.setattr(os.path, "join", lowered)
        with pytest.raises(FileExistsError):
            tree.unpack(str(tmp_path / "there"))


def test_a_folder_of_windows_has_drives_without_a_colon(tmp_path: Path) -> None:
    tree = Tree()
    tree.put("host.json", b'{"platform": "win32", "python": {"prefix": "C:/Python"}}')
    tree.put("root/C:/Python/python.exe", b"MZ")
    (tmp_path / "it.machine").write_bytes(tree.text())

    tree.unpack(str(tmp_path / "it"))

    assert os.listdir(tmp_path / "it" / "root") == ["C"]
    for name in ("it", "it.machine"):
        host = Host(str(tmp_path / name))
        assert host.read("C:/Python/python.exe") == "MZ"
        assert host.listdir("C:/Python") == ["python.exe"]
        assert host.read("c:/python/PYTHON.EXE") == "MZ"
        assert not host.exists("D:/Python")


def test_two_spellings_of_a_path_of_windows_are_one_file() -> None:
    tree = Tree()
    tree.put("root/C:/Windows/System32/a.dll", b"MZ")
    tree.put("root/C:/windows/system32/B.dll", b"")
    tree.put("root/C:/WINDOWS", set())

    assert sorted(tree.entries)[-2:] == [
        "root/C:/Windows/System32/B.dll",
        "root/C:/Windows/System32/a.dll",
    ]
    with pytest.raises(ValueError, match="appears twice in it"):
        tree.put("root/C:/WINDOWS/system32/A.DLL", b"")

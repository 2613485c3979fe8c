"""The host answers every question, whatever lies below its root."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput
from mlbackends.base.quantities import to_int
from mlbackends.host.files import READ_LIMIT
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    folder.mkdir()
    (folder / "etc").mkdir()
    return folder


def test_a_missing_file_reads_as_nothing(root: Path) -> None:
    host = Host(str(root))

    assert host.read("/proc/cpuinfo") == ""
    assert host.read_int("/proc/cpuinfo") is None
    assert host.listdir("/proc") == []
    assert host.glob("/proc/*/maps") == []
    assert host.readlink("/proc/self") == ""
    assert host.size("/proc") == 0
    assert not host.exists("/proc")


@pytest.mark.parametrize("path", ["/folder", "/fifo", "/null\0byte", "/loop", "/gone", "/" + "x" * 5000])
def test_what_is_no_file_reads_as_nothing_and_never_waits(root: Path, path: str) -> None:
    (root / "folder").mkdir()
    os.mkfifo(root / "fifo")
    (root / "loop").symlink_to("loop")
    (root / "gone").symlink_to("nowhere")

    host = Host(str(root))
    assert host.read(path) == ""
    host.exists(path)


def test_a_huge_file_is_cut_and_garbage_is_replaced(root: Path) -> None:
    with (root / "huge").open("wb") as file:
        file.truncate(READ_LIMIT + 1000)
    (root / "garbage").write_bytes(b"\xff\xfe1\0\n")

    host = Host(str(root))
    assert len(host.read_bytes("/huge")) == READ_LIMIT
    assert len(host.read_bytes("/huge", 10)) == 10
    assert host.read("/garbage") == "��1"


@pytest.mark.parametrize(
    "target", ["/secret", "../../secret", "../secret", "/../../secret", "/folder/../../../secret"]
)
def test_no_link_leads_out_of_a_recorded_root(root: Path, target: str) -> None:
    (root.parent / "secret").write_text("outside")
    (root / "folder").mkdir()
    (root / "link").symlink_to(target)

    assert Host(str(root)).read("/link") == ""
    (root / "secret").write_text("inside")
    assert Host(str(root)).read("/link") == "inside"


def out_of(root: Path, steps: int) -> str:
    """Return a relative link target that leads from a first folder of the root to secret/file."""
    return "../" * steps + str(root.parent / "secret/file").lstrip("/")


@pytest.mark.parametrize("steps", [1, 3, 12, 60])
@pytest.mark.parametrize("way", ["link", "link-to-link", "parent", "itself", "pair"])
def test_no_number_of_steps_up_leads_out_of_a_recorded_root(root: Path, way: str, steps: int) -> None:
    (root.parent / "secret").mkdir()
    (root.parent / "secret/file").write_text("outside")
    (root / "proc").mkdir()
    up = out_of(root, steps)
    if way == "link":
        (root / "proc/file").symlink_to(up)
    elif way == "link-to-link":
        (root / "proc/file").symlink_to("other")
        (root / "proc/other").symlink_to(up)
    elif way == "parent":
        (root / "proc/folder").symlink_to(up.removesuffix("/file"))
    else:
        # The path that the link names leads, below the root, back to the link: only there is it a loop.
        at = root / str(root.parent / "secret").lstrip("/")
        at.mkdir(parents=True)
        depth = len(at.relative_to(root).parts)
        name = "file" if way == "itself" else "other"
        (at / "file").symlink_to("../" * (steps + depth) + f"{at.relative_to(root)}/{name}")
        (at / "other").symlink_to("file")
        (root / "proc/file").symlink_to(up)

    host = Host(str(root))
    for path in ("/proc/file", "/proc/folder/file", "/proc/../proc/./file"):
        assert host.read(path) == ""
        assert not host.is_file(path)
        assert host.size(path) == 0
        assert host.read(host.realpath(path)) == ""
    assert host.listdir("/proc/folder") == []


def test_a_link_that_leads_to_itself_below_the_root_is_not_followed_out_of_it(root: Path) -> None:
    """Its target is the machine's own file of that name, for a system that knows no root."""
    inside = root / str(root.parent).lstrip("/")
    inside.mkdir(parents=True)
    (root.parent / "secret").write_text("outside")
    up = "../" * 60 + str(root.parent / "secret").lstrip("/")
    (inside / "secret").symlink_to(up)

    host = Host(str(root))
    assert (inside / "secret").read_text() == "outside"
    path = str(root.parent / "secret")
    assert host.read(path) == ""
    assert not host.exists(path)
    assert host.realpath(path) == path
    assert host.readlink(path) == up


def test_absolute_links_are_read_below_the_root(root: Path) -> None:
    (root / "sys/devices/pci0").mkdir(parents=True)
    (root / "sys/devices/pci0/vendor").write_text("0x10de\n")
    (root / "sys/bus").mkdir()
    (root / "sys/bus/first").symlink_to("/sys/devices/pci0")

    host = Host(str(root))
    assert host.read("/sys/bus/first/vendor") == "0x10de"
    assert host.realpath("/sys/bus/first/vendor") == "/sys/devices/pci0/vendor"
    assert host.readlink("/sys/bus/first") == "/sys/devices/pci0"
    assert host.is_link("/sys/bus/first")


@given(
    links=st.dictionaries(
        st.sampled_from("abcde"),
        st.lists(st.sampled_from(["a", "b", "c", "..", ".", "d", "x", ""]), min_size=1, max_size=4),
    ),
    parts=st.lists(st.sampled_from(["a", "b", "c", "d", "e", "x", "..", "."]), max_size=5),
)
def test_a_path_of_this_machine_is_resolved_as_the_system_does(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, list[str]], parts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("links")
    (folder / "x").mkdir()
    for name, target in links.items():
        (folder / name).symlink_to("/".join(target) or ".")
        (folder / "x" / name).symlink_to("../" + "/".join(target))
    path = "/".join((str(folder), *parts))

    assert Host().realpath(path) == os.path.realpath(path)


def test_a_file_that_may_not_be_read_is_told(
    root: Path, unprivileged: Callable[[], AbstractContextManager[None]]
) -> None:
    (root / "secret").write_text("x")
    (root / "secret").chmod(0)
    host = Host(str(root))
    with unprivileged():
        assert host.read("/secret") == ""
    assert host.denied == ["/secret"]


@pytest.mark.parametrize("pattern", ["lib*.so", "*", "a*a", "cuda-*", "*.[ch]", "?", "*a*", "**"])
def test_a_glob_matches_as_fnmatch_does(root: Path, pattern: str) -> None:
    names = ["**", "a", "aa", "aba", "b", "cuda", "cuda-13", "lib.so", "lib.so.1", "liba.so", "x.c"]
    for name in names:
        (root / "etc" / name).touch()

    found = Host(str(root)).glob(f"/etc/{pattern}")
    assert found == [f"/etc/{name}" for name in names if fnmatchcase(name, pattern)]


def test_a_glob_gives_what_is_there_in_order(root: Path) -> None:
    for name in ("cpu1", "cpu0", "cpufreq", ".hidden"):
        (root / "cpu" / name).mkdir(parents=True)
        (root / "cpu" / name / "online").write_text("1")

    assert Host(str(root)).glob("/cpu/cpu[0-9]/online") == ["/cpu/cpu0/online", "/cpu/cpu1/online"]
    assert Host(str(root)).glob("/cpu/*") == ["/cpu/cpu0", "/cpu/cpu1", "/cpu/cpufreq"]


def test_a_recorded_host_has_its_own_environment_and_answers(root: Path) -> None:
    (root / "root" / "proc").mkdir(parents=True)
    (root / "root/proc/version").write_bytes(b"Linux\n")
    (root / "commands").mkdir()
    (root / "commands" / "sysctl -n a_b").write_bytes(b"42\n")
    (root / "host.json").write_text(
        '{"platform": "darwin", "uname": {"machine": "arm64"}, "environment": {"A": "1"},'
        ' "affinity": [1, 3], "disks": {"/dev/shm": [100, 50]}, "system": {"libc": "glibc 2.31"}}'
    )

    host = Host(str(root))
    assert (host.platform, host.machine, host.env("A"), host.env("PATH")) == (
        "darwin",
        "arm64",
        "1",
        "",
    )
    assert host.affinity() == (1, 3)
    assert host.disk("/dev/shm") == (100, 50)
    assert host.disk("/") is None
    assert host.system("libc") == "glibc 2.31"
    assert host.system("page_size") is None
    assert host.run("sysctl", "-n", "a/b") == "42\n"
    assert host.run("sysctl", "-a") == ""
    assert host.read("/proc/version") == "Linux"


def test_a_folder_that_is_not_there_is_bad_input(root: Path) -> None:
    with pytest.raises(BadInput, match="is not a folder"):
        Host(str(root / "nothing"))


@pytest.mark.parametrize("name", ["empty", "home/user", "root"])
def test_a_folder_without_any_part_of_a_machine_is_bad_input(tmp_path: Path, name: str) -> None:
    (tmp_path / "given" / name).mkdir(parents=True)

    with pytest.raises(BadInput, match="it is not a machine description") as raised:
        Host(str(tmp_path / "given"))
    assert "\n" not in str(raised.value)
    assert raised.value.hint.startswith("name a folder with proc/ and sys/ in it")


@pytest.mark.parametrize("part", ["proc", "sys", "etc", "root/sys"])
def test_a_part_of_a_machine_is_a_recorded_machine(tmp_path: Path, part: str) -> None:
    (tmp_path / part).mkdir(parents=True)

    assert Host(str(tmp_path)).listdir("/" + part.removeprefix("root/")) == []


def test_names_that_are_not_text_are_left_out(root: Path) -> None:
    (root / os.fsdecode(b"bad\xff.so")).write_text("")
    (root / "good.so").write_text("")

    assert Host(str(root)).listdir("/") == ["etc", "good.so"]
    host = Host(environment={"LD_LIBRARY_PATH": "/good:/bad\udcff", "\udcff": "x"})
    assert list(host.environment) == ["LD_LIBRARY_PATH"]
    assert host.env("LD_LIBRARY_PATH").startswith("/good:/bad\ufffd")


def test_the_live_host_agrees_with_the_system() -> None:
    host = Host()

    assert host.uname()["machine"] == os.uname().machine
    assert host.env("PATH") == os.environ.get("PATH", "")
    assert host.affinity() == tuple(sorted(os.sched_getaffinity(0)))
    assert host.disk("/nonexistent") is None
    assert host.system("page_size") == os.sysconf("SC_PAGE_SIZE")
    assert host.run("printf", "%s", "hello") == "hello"
    assert host.run("false") == ""
    assert host.run("/nonexistent/program") == ""


def test_a_command_that_hangs_is_stopped_with_all_that_it_started() -> None:
    assert Host().run("sh", "-c", "sleep 600 & echo $!; sleep 600", timeout=0.5) == ""


@given(st.text(max_size=40))
def test_a_number_is_a_number_or_none(text: str) -> None:
    assert to_int(text) is None or isinstance(to_int(text), int)


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), (" 0x1f\n", 31), ("007", 7), ("-1", -1), ("", None), ("max", None), ("1.5", None)],
)
def test_numbers_are_read_as_the_kernel_writes_them(text: str, number: int | None) -> None:
    assert to_int(text) == number


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ('{"environment": []}', "environment: expected object, got array"),
        ('{"environment": {"A": 1}}', "environment[...]: expected str"),
        ('{"uname": "x"}', "uname: expected object, got str"),
        ('{"affinity": "zz"}', "affinity: expected array"),
        ('{"affinity": [-1]}', "affinity[0]: expected int >= 0"),
        ('{"affinity": [0, 99999999999999999999]}', "affinity[1]"),
        ('{"disks": {"/dev/shm": ["a"]}}', "disks[...]"),
        ('{"disks": {"/dev/shm": [1, -1]}}', "disks[...][1]"),
        ('{"sizes": {"/x": 1.5}}', "sizes[...]"),
        ('{"python": {"path": [1]}}', "python.path[0]"),
        ('{"system": {"page_size": 0}}', "system.page_size"),
        ('{"platform": null}', "platform"),
    ],
)
def test_a_description_of_another_kind_is_refused_by_file_and_field(
    root: Path, content: str, field: str
) -> None:
    (root / "host.json").write_text(content)
    with pytest.raises(BadInput) as caught:
        Host(str(root))
    said = str(caught.value)
    assert f"{root}/host.json" in said
    assert field in said
    assert "\n" not in said


@pytest.mark.parametrize("part", ["root", "commands", "host.json"])
@pytest.mark.parametrize("target", ["/", "{outside}", "../outside"])
def test_a_part_that_is_a_link_out_of_the_machine_is_refused(root: Path, part: str, target: str) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    if part == "host.json":
        target += "/host.json"
        (outside / "host.json").write_text("{}")
    (root / part).symlink_to(target.format(outside=outside))
    if part == "host.json" and not (root / part).exists():
        return
    with pytest.raises(BadInput, match="points outside the recorded machine") as caught:
        Host(str(root))
    assert f"{root}/{part}" in str(caught.value)


def test_a_folder_that_is_itself_a_link_is_a_machine(root: Path) -> None:
    (root / "root/etc").mkdir(parents=True)
    (root / "root/etc/os-release").write_text("ID=debian")
    (root / "host.json").write_text("{}")
    link = root.parent / "link"
    link.symlink_to(root)
    assert Host(str(link)).read("/etc/os-release") == "ID=debian"


def test_a_commands_output_is_a_file_of_the_machine(root: Path) -> None:
    (root / "host.json").write_text("{}")
    (root / "commands").mkdir()
    (root.parent / "secret").write_text("outside")
    (root / "commands" / "link").symlink_to("../../secret")
    os.mkfifo(root / "commands" / "fifo")
    (root / "commands" / "file").write_text("said")
    host = Host(str(root))
    assert [host.run(name) for name in ("link", "fifo", "file")] == ["", "", "said"]

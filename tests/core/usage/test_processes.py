"""Processes are read from a folder that stands for /proc, and from this machine's own."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.usage import mapped
from mlbackends.usage.mapped import Mapped
from mlbackends.usage.processes import Processes, by_psutil, name_of

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends.model.usage import MappedLibrary

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

LINE = "7f0000000000-7f0000001000 {mode} 00000000 08:01 1234   {path}\n"


def put(
    proc: Path,
    pid: int,
    name: str = "trainer",
    *,
    state: str = "S",
    ticks: int = 0,
    threads: int = 1,
    mapped: int = 4096,
    flags: int = 0,
    maps: str = "",
) -> None:
    """Write a process into a folder, as proc_pid_stat(5) has it."""
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    fields = [state, "1", "1", "1", "0", "0", str(flags), "0", "0", "0", "0", str(ticks), "0"]
    fields += ["0", "0", "20", "0", str(threads), "0", "777", str(mapped), "10"]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)} 0 0\n")
    (folder / "maps").write_text(maps)
    (folder / "cmdline").write_text("")


def test_a_share_of_the_cpus_comes_with_the_second_sample(tmp_path: Path) -> None:
    put(tmp_path, 7, ticks=100)
    reader = Processes(str(tmp_path))
    (first,) = reader.read(0.0)
    put(tmp_path, 7, ticks=100 + os.sysconf("SC_CLK_TCK"))
    (second,) = reader.read(2.0)

    assert (first.cpu_percent, second.cpu_percent) == (None, 50.0)
    assert second.memory_bytes == 10 * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("name", ["a) b (c", "evil\n\033[31m)\n9 (x", "\u202egnp.exe", ""])
def test_a_hostile_name_is_one_line_without_controls(tmp_path: Path, name: str) -> None:
    put(tmp_path, 7, name, threads=3)
    (found,) = Processes(str(tmp_path)).read(0.0)

    assert found.name.isprintable()
    assert (found.state, found.threads) == ("S", 3)


def test_kernel_threads_the_ended_and_the_damaged_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, 2, "kthreadd", flags=0x00200000)
    put(tmp_path, 7)
    (tmp_path / "8").mkdir()
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "stat").write_text("9 (cut")
    (tmp_path / "self").mkdir()

    assert [process.pid for process in Processes(str(tmp_path)).read(0.0)] == [7]


def test_the_number_of_a_kernel_thread_may_become_a_process(tmp_path: Path) -> None:
    put(tmp_path, 7, "kworker", flags=0x00200000)
    reader = Processes(str(tmp_path))
    assert reader.read(0.0) == []
    put(tmp_path, 7)

    assert any(reader.read(1.0) for _ in range(16))


def test_a_zombie_is_shown_without_libraries(tmp_path: Path) -> None:
    put(tmp_path, 7, state="Z", mapped=0)
    (found,) = Processes(str(tmp_path)).read(0.0)

    assert (found.state, found.libraries) == ("Z", ())


def test_mapped_files_are_read_again_only_when_their_size_changes(tmp_path: Path) -> None:
    line = LINE.format(mode="r-xp", path="/opt/lib/libgomp.so.1")
    reader = Processes(str(tmp_path))
    put(tmp_path, 7)
    (first,) = reader.read(0.0)
    put(tmp_path, 7, maps=line)
    (second,) = reader.read(1.0)
    put(tmp_path, 7, maps=line, mapped=8192)
    (third,) = reader.read(1.0)

    assert [process.libraries for process in (first, second)] == [(), ()]
    assert [library.name for library in third.libraries or ()] == ["openmp"]


def test_without_time_left_mapped_files_are_read_later(tmp_path: Path) -> None:
    put(tmp_path, 7)
    reader = Processes(str(tmp_path), seconds=-1.0)
    reader.read(0.0)
    put(tmp_path, 8)
    found = {process.pid: process.libraries for process in reader.read(1.0)}

    assert found == {7: (), 8: None}


def test_what_may_not_be_read_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, 7)
    (tmp_path / "7" / "maps").unlink()
    (tmp_path / "7" / "maps").mkdir()
    refused = str(tmp_path / "8" / "stat")
    put(tmp_path, 8)
    opened = open

    def open_(path: Any, *rest: Any, **more: Any) -> Any:
        if path == refused:  # as with hidepid
            raise PermissionError(1, "not permitted")
        return opened(path, *rest, **more)

    monkeypatch.setattr("builtins.open", open_)
    found = {process.pid: process for process in Processes(str(tmp_path)).read(0.0)}

    assert found[7].libraries is None
    assert (found[8].name, found[8].threads) == ("", None)


def test_more_threads_that_run_than_cpus_are_oversubscribed(tmp_path: Path) -> None:
    maps = LINE.format(mode="r-xp", path="/opt/lib/libgomp.so.1")
    own = os.getpid()  # a process whose affinity can be read
    count = len(os.sched_getaffinity(0)) + 1
    put(tmp_path, own, maps=maps, threads=count)
    (tmp_path / str(own) / "cgroup").write_text("0::/\n")
    for task in range(count):
        folder = tmp_path / str(own) / "task" / str(task)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"{task} (R) (trainer) R 1\n")
    reader = Processes(str(tmp_path))
    reader.read(0.0)
    put(tmp_path, own, maps=maps, threads=count, ticks=1000)
    (found,) = reader.read(1.0)

    assert (found.running_threads, found.oversubscribed) == (count, True)


def test_libraries_are_code_that_a_probe_knows(tmp_path: Path) -> None:
    paths = {
        "/w/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so": "r-xp",
        "/w/lib/python3.11/site-packages/torch/lib/libtorch_python.so": "r-xp",
        "/w/lib/python3.11/site-packages/torch/lib/libgomp-24e2ab19.so.1": "r-xp",
        "/opt/conda/lib/libomp.so (deleted)": "r-xp",
        "/opt/cuda/libcudnn_ops.so.9": "r-xp",
        "/opt/cuda/libcudnn.so.9": "r-xp",
        "/opt/cuda/libcudartist.so.9": "r-xp",
        "/opt/libopenblas.so.0": "r--p",
    }
    put(tmp_path, 7, maps="".join(LINE.format(mode=mode, path=path) for path, mode in paths.items()))
    found = Mapped(str(tmp_path)).libraries(7)

    assert [(library.name, library.path.rpartition("/")[2], library.replaced) for library in found] == [
        ("torch", "libtorch_cpu.so", False),
        ("openmp", "libomp.so", True),
        ("openmp", "libgomp-24e2ab19.so.1", False),
        ("cudnn", "libcudnn.so.9", False),
    ]


def test_a_package_that_is_replaced_has_its_new_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "_FRESH_SECONDS", -1.0)
    (tmp_path / "7/ns").mkdir(parents=True)
    (tmp_path / "7/ns/mnt").symlink_to(os.readlink("/proc/self/ns/mnt"))  # its files are ours
    site = tmp_path / "env/lib/python3.11/site-packages"
    library = site / "torch/lib/libtorch_cpu.so"
    reader = Mapped(str(tmp_path))
    found: list[MappedLibrary] = []
    for number, version in enumerate(("2.13.0", "2.15.0")):
        shutil.rmtree(site, ignore_errors=True)
        library.parent.mkdir(parents=True)
        library.touch()
        info = site / f"torch-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: torch\nVersion: {version}\n")
        (info / "RECORD").write_text("torch/lib/libtorch_cpu.so,,\n")
        line = LINE.format(mode="r-xp", path=library).replace("1234", str(number + 1))
        put(tmp_path, 7, maps=line)
        found += reader.libraries(7)

    assert [library.version for library in found] == ["2.13.0", "2.15.0"]


def test_this_process_has_its_name_and_libraries() -> None:
    pytest.importorskip("numpy")
    found = {process.pid: process for process in Processes().read(0.0)}[os.getpid()]

    assert found.threads is not None and found.cpus
    (numpy,) = (library for library in found.libraries or () if library.name == "numpy")
    assert numpy.path.endswith(".so") and not numpy.replaced


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["/usr/bin/python3", "-u", "/work/train.py", "--x"], "python train.py"),
        (
            ["python", "-W", "error", "-m", "torch.distributed.run"],
            "python -m torch.distributed.run",
        ),
        (["python", "-c", "import x"], "python -c"),
        (["python"], "python3"),
    ],
)
def test_a_python_goes_by_its_program(arguments: list[str], name: str) -> None:
    assert name_of("python3", arguments) == name
    assert name_of("bash", ["bash", "train.py"]) == "bash"


def test_psutil_tells_of_processes_where_there_is_no_proc() -> None:
    found = {process.pid: process for process in by_psutil()}[os.getpid()]

    assert found.threads and found.memory_bytes and found.name
    assert (found.libraries, found.cpus) == (None, None)

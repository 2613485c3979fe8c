"""A file system that never answers costs its own paths, and nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil
import pytest

from mlbackends.base import mounts, reader
from mlbackends.host.host import Host, once_per_host
from mlbackends.model.records import Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts are found out on Linux only")

DEAD_MOUNT = Path(__file__).resolve().parents[2] / "dead_mount.py"
SILENT = (
    "from multiprocessing.connection import Connection; import time;"
    " ours = Connection(0); ours.send(True); time.sleep(60)"
)
LINE = "36 35 98:0 / {} rw,noatime master:1 - {} server:/home rw,errors=continue\n"


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder that counts as a network mount."""
    folder = tmp_path / "net work"
    folder.mkdir()
    listing = tmp_path / "mountinfo"
    listing.write_text(LINE.format("/", "ext4") + LINE.format(str(folder).replace(" ", "\\040"), "nfs4"))
    monkeypatch.setattr(mounts, "_mounts", mounts.Mounts(str(listing)))
    yield folder
    reader.end()


@pytest.fixture
def silent(network: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that counts as a mount, and what is called on it gives no answer."""
    monkeypatch.setattr(reader, "_SERVE", SILENT)
    (network / "lib").mkdir()
    return network


def readers() -> list[psutil.Process]:
    """Return the processes that make calls on mounts for this one."""
    children = psutil.Process().children()
    return [child for child in children if "mlbackends.base.reader" in " ".join(child.cmdline())]


def table(tmp_path: Path, *lines: str) -> mounts.Mounts:
    (tmp_path / "mountinfo").write_text("".join(lines))
    return mounts.Mounts(str(tmp_path / "mountinfo"))


def test_mounts_of_other_machines_and_programs_are_foreign(tmp_path: Path) -> None:
    kinds = (
        "nfs4",
        "fuse.sshfs",
        "cifs",
        "lustre",
        "autofs",
        "ext4",
        "tmpfs",
        "overlay",
        "fusectl",
    )
    found = table(tmp_path, *(LINE.format(f"/mnt/{kind}", kind) for kind in kinds)).foreign

    assert set(found) == {f"/mnt/{kind}" for kind in ("nfs4", "fuse.sshfs", "cifs", "lustre", "autofs")}


def test_the_mount_that_this_code_lies_on_has_answered(tmp_path: Path) -> None:
    package = str(Path(mounts.__file__).resolve().parents[1])
    found = table(tmp_path, LINE.format(package, "nfs"), LINE.format("/", "fuse.overlay"))

    assert found.foreign == {}


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("net/x/y", True),
        ("net", True),
        ("link/x", True),
        ("relative/x", True),
        ("net/../here", True),
        ("here/../net/x", True),
        ("loop/x", False),
        ("netting", False),
        ("here/" * 2000, False),
    ],
)
def test_a_path_is_followed_up_to_the_mount(tmp_path: Path, path: str, is_there: bool) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "net")
    (tmp_path / "relative").symlink_to("here/../net/z")
    (tmp_path / "here").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    found = table(tmp_path, LINE.format(tmp_path / "net", "nfs"))

    assert found.mount_of(f"{tmp_path}/{path}") == (str(tmp_path / "net") if is_there else "")


def test_a_path_is_followed_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = table(tmp_path, LINE.format(tmp_path / "net", "nfs"))

    assert found.mount_of("net/x") == str(tmp_path / "net")
    assert found.mount_of("x") == ""
    assert found.mount_of("/proc/self/cwd/net/x") == str(tmp_path / "net")
    assert found.mount_of("/proc/self/maps") == ""


def test_a_mount_that_answers_is_read(network: Path) -> None:
    (network / "file").write_text("text")
    (network / "link").symlink_to("file")
    host = Host()

    assert host.read(f"{network}/file") == "text"
    assert host.listdir(str(network)) == ["file", "link"]
    assert host.realpath(f"{network}/link") == f"{network}/file"
    assert host.readlink(f"{network}/link") == "file"
    assert host.size(f"{network}/file") == 4
    assert host.glob(f"{network}/l*") == [f"{network}/link"]
    assert not host.exists(f"{network}/nothing")
    with pytest.raises(FileNotFoundError):
        mounts.call(os.stat, f"{network}/nothing")
    assert host.silent == []
    assert readers()


def test_a_process_that_ends_costs_one_call(network: Path) -> None:
    assert mounts.call(os.path.isdir, str(network))
    (process,) = readers()
    process.kill()

    with pytest.raises(OSError, match="has ended"):
        mounts.call(os.path.isdir, str(network))
    assert mounts.call(os.path.isdir, str(network))


def test_a_mount_that_was_silent_is_not_called_again(silent: Path) -> None:
    host = Host(timeout=0.02)

    assert not host.exists(f"{silent}/lib")
    start = time.monotonic()
    host.timeout = 60.0
    assert host.listdir(f"{silent}/lib") == []
    assert host.read(f"{silent}/lib/file") == ""
    assert host.realpath(f"{silent}/lib") == f"{silent}/lib"
    assert time.monotonic() - start < 30
    assert host.silent[0] == (str(silent), f"{silent}/lib")
    assert mounts.is_silent(f"{silent}/other")


def test_what_a_cached_result_did_not_get_is_noted_for_each_who_asks(silent: Path) -> None:
    host = Host(timeout=0.02)

    @once_per_host
    def names(host: Host) -> list[str]:
        return host.listdir(f"{silent}/lib")

    assert names(host) == []
    before = len(host.silent)
    assert names(host) == []
    assert host.silent[before:] == [(str(silent), f"{silent}/lib")]


def test_a_program_is_found_behind_a_folder_that_is_silent(silent: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "program"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    mounts.current().silent.add(str(silent))

    assert mounts.which("program", f"{silent}/bin:{program.parent}") == str(program)
    assert mounts.which("program", f"{silent}/bin") == ""
    with pytest.raises(mounts.NotAnswering, match="does not answer"):
        mounts.which(f"{silent}/bin/program", "")


def test_an_import_waits_for_no_folder_that_is_silent(silent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"{silent}/lib"
    monkeypatch.setattr(sys, "path", [*sys.path, folder])
    monkeypatch.setattr(sys, "path_importer_cache", {**sys.path_importer_cache})
    table = mounts.current()
    table.silent.add(str(silent))
    mounts._spare_imports(table)

    assert sys.path_importer_cache[folder] is None
    assert repr(folder) not in reader.python_command("")[-1]


def test_an_import_finds_what_a_mount_that_answers_holds(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (network / "only_there_9.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(network)])
    monkeypatch.setattr(sys, "path_importer_cache", {**sys.path_importer_cache})
    mounts._spare_imports(mounts.current())

    assert importlib.util.find_spec("only_there_9") is not None
    assert repr(str(network)) in reader.python_command("")[-1]


def test_our_processes_start_without_the_loaders_folders_that_are_silent(
    silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/usr/lib:{silent}/lib")

    assert mounts.environment(trusting=True)["LD_LIBRARY_PATH"] == f"/usr/lib:{silent}/lib"
    assert mounts.environment(trusting=False)["LD_LIBRARY_PATH"] == "/usr/lib"
    mounts.current().silent.add(str(silent))
    assert mounts.environment(trusting=True)["LD_LIBRARY_PATH"] == "/usr/lib"


def test_a_folder_for_temporary_files_that_is_silent_is_refused(
    silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(silent))
    mounts.current().silent.add(str(silent))

    with pytest.raises(mounts.NotAnswering, match="does not answer"):
        mounts.check_temporary()


def test_a_survey_names_what_does_not_answer_and_is_else_whole(silent: Path) -> None:
    environment = {"CUDA_HOME": str(silent), "CONDA_PREFIX": f"{silent}/conda"}
    host = Host(environment=environment, timeout=0.02)
    report = survey(("cpu", "cudnn", "cuda_toolkit"), host, Presence.FOUND)

    cudnn = report.probes["cudnn"]
    assert cudnn.presence is None
    assert cudnn.reasons[0].code == "not-answering"
    assert str(silent) in cudnn.reasons[0].message
    assert report.probes["cpu"].presence is Presence.FOUND
    said = [*report.probes["cuda_toolkit"].warnings, *report.probes["cuda_toolkit"].reasons]
    assert "not-answering" in {reason.code for reason in said}
    assert not any("not there" in reason.message for reason in said)


@pytest.mark.parametrize("how", ["silent", "opens"])
def test_a_dead_mount_costs_its_time_limit(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "dead"
    folder.mkdir()
    command = [
        "-m",
        "mlbackends",
        "info",
        "--depth",
        "found",
        "--timeout",
        "0.1",
        "--format",
        "json",
    ]
    done = subprocess.run(
        [sys.executable, str(DEAD_MOUNT), str(folder), how, sys.executable, *command],
        env={
            **os.environ,
            **dict.fromkeys(("CUDA_HOME", "CONDA_PREFIX", "HOME"), f"{folder}/x"),
            "PATH": f"{os.environ['PATH']}:{folder}/bin",
        },
        capture_output=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.decode())
    assert done.returncode == 0, done.stderr
    probes = msgspec.json.decode(done.stdout)["probes"]
    silent = {
        name
        for name, probe in probes.items()
        for reason in (*probe.get("reasons", ()), *probe.get("warnings", ()))
        if reason["code"] == "not-answering" and str(folder) in reason["message"]
    }
    assert silent >= {"compilers", "vulkan", "cudnn"}
    assert probes["cpu"]["facts"]["cores"] > 0


def test_a_report_is_not_written_to_a_dead_mount(tmp_path: Path) -> None:
    folder = tmp_path / "dead"
    folder.mkdir()
    command = ["-m", "mlbackends", "snapshot", "--depth", "found", f"{folder}/report.json"]
    done = subprocess.run(
        [sys.executable, str(DEAD_MOUNT), str(folder), "silent", sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert done.returncode == 2
    assert "does not answer" in done.stderr

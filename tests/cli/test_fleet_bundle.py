"""`backends fleet bundle`, and `fleet run --push` over stubs of ssh, srun and mpirun."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec import Raw
from running import backends

from mlbackends.audit.reports import report_of
from mlbackends.base.version import __version__
from mlbackends.fleet import bundle, payload, unpacker
from mlbackends.fleet.frames import frames
from mlbackends.fleet.unpacker import PYTHON, fits
from mlbackends.model.fleet import Envelope

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(os.name == "nt", reason="bundles are for Linux and macOS")
MACHINE = Path(__file__).parents[1] / "hosts" / "cluster-modules-node.machine"
HERE = f"linux_{platform.machine()}" if sys.platform == "linux" else f"macosx_11_0_{platform.machine()}"
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PROGRAM = """
import json, os, stat, sys, time
folder = sys.prefix
print(json.dumps({"words": sys.argv[1:], "folder": folder, "mode": stat.S_IMODE(os.stat(folder).st_mode),
                  "base": sys.base_prefix, "executable": sys.executable}), flush=True)
if "wait" in sys.argv:
    time.sleep(60)
sys.exit(3)
"""


def small(program: str = PROGRAM, pythons: tuple[str, ...] = (VERSION,), tag: str = HERE) -> bytes:
    """Return a bundle in which a program stands for backends."""
    parts = {"mlbackends-0": {"mlbackends/__init__.py": b"", "mlbackends/__main__.py": program.encode()}}
    return bundle.bundle_of([bundle.Target(python, tag, (*parts,)) for python in pythons], parts)


def other_pythons() -> dict[str, str]:
    """Return the interpreters of this machine that a bundle can be for, by their version."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = {VERSION: sys.executable}
    for version in bundle.PYTHONS:
        paths = [
            *map(str, sorted(root.glob(f"versions/{version}.*/bin/python3"))),
            shutil.which(f"python{version}"),
        ]
        found.setdefault(version, next((path for path in paths if path), ""))
    return {version: path for version, path in found.items() if path}


def leftovers(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("version", other_pythons())
def test_a_bundle_runs_from_a_private_folder_and_removes_it(version: str, tmp_path: Path) -> None:
    python = other_pythons()[version]
    file, temporary = tmp_path / "a.pyz", tmp_path / "temporary"
    file.write_bytes(small(pythons=tuple(other_pythons())))
    temporary.mkdir()
    done = subprocess.run(
        [python, "-I", str(file), "info", "a b"], env={"TMPDIR": str(temporary)},
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert (found["words"], found["mode"]) == (["info", "a b"], 0o700)
    assert Path(found["folder"]).parent == temporary
    assert found["executable"].startswith(found["folder"]) and found["base"] != found["folder"]
    assert leftovers(temporary) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_bundle_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    file, temporary = tmp_path / "a.pyz", tmp_path / "temporary"
    file.write_bytes(small())
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, str(file), "wait"], env={"TMPDIR": str(temporary), "PATH": os.defpath},
        stdout=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline()
        assert leftovers(temporary)
        process.send_signal(number)
        code = process.wait(30)
        assert code == (-number if number == signal.SIGKILL else 128 + number)
        if number == signal.SIGKILL:
            os.killpg(process.pid, number)  # as `timeout -k` and a scheduler do
        end = time.monotonic() + 20
        while leftovers(temporary) and time.monotonic() < end:
            time.sleep(0.05)
    assert leftovers(temporary) == []


def test_a_bundle_for_others_names_what_it_is_for(tmp_path: Path) -> None:
    file = tmp_path / "a.pyz"
    file.write_bytes(small(pythons=("3.98", "3.99")))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    here = f"Python {platform.python_version()} on {platform.machine()}"
    known = f"3.98 on {HERE}, 3.99 on {HERE}"
    assert done.stderr == f"backends: the bundle has nothing that fits {here}, only: {known}\n"


def test_a_damaged_bundle_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.pyz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(unpacker.__file__, "__main__.py")
        archive.writestr("bundle.json", zipfile.ZipFile(io.BytesIO(small())).read("bundle.json"))
        archive.writestr("parts/mlbackends-0/mlbackends.py", "some bytes")
    file.write_bytes(file.read_bytes().replace(b"some bytes", b"same bytes"))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("backends: Bad CRC-32 for file 'parts/mlbackends-0/mlbackends.py'")


@pytest.mark.skipif(sys.platform != "linux", reason="tags of Linux")
def test_what_fits_this_machine() -> None:
    machine, glibc = platform.machine(), bool(platform.libc_ver()[0])
    assert fits(VERSION, f"linux_{machine}")
    assert fits(VERSION, f"manylinux_2_5_{machine}") is glibc
    assert fits(VERSION, f"manylinux2014_{machine}") is glibc
    assert not fits(VERSION, f"manylinux_2_998_{machine}")
    assert not fits(VERSION, "manylinux_2_5_riscv64")
    assert not fits(VERSION, f"musllinux_1_2_{machine}") or not glibc
    assert not fits(VERSION, "macosx_11_0_universal2")
    assert not fits("3.1", f"linux_{machine}")


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    parts = {"a-1": {"b.py": b"1", "a/c.py": b"2"}, "b-1": {"d.py": b"3"}}
    turned = {name: dict(reversed(parts[name].items())) for name in reversed(parts)}
    target = bundle.Target("3.11", HERE, (*parts,))
    first = bundle.bundle_of([target], parts)
    time.sleep(0.01)
    assert bundle.bundle_of([target], turned) == first
    assert first.startswith(b"#!/usr/bin/env python3\n")


def reporting(folder: Path) -> bytes:
    """Return a bundle whose program keeps its words, and prints the frames of the node that it is on."""
    report = Raw(msgspec.json.encode(report_of(str(MACHINE))))
    for node in (f"n{at}" for at in range(1, 10)):
        lines = frames(Envelope(node=node, report=report))
        (folder / node).write_text("".join(f"{line}\n" for line in lines))
    program = f"""
import os, sys
node = os.environ["NODE_NAME"]
print(sys.argv[1:], file=open({str(folder)!r} + "/words-" + node, "w"))
print(open({str(folder)!r} + "/" + node).read())
"""
    return small(program)


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[[str, str], dict[str, str]]:
    """Return a function that makes a stub of a cluster's program, and the environment that finds it.

    n3 gets a part of the bundle, n4 a changed one, n5 has no Python, n6 an old one, n7 reads nothing.
    """
    (tmp_path / "temporary").mkdir()
    for name in ("none", "old"):
        (tmp_path / name).mkdir()
        for program in ("sh", "uname", "timeout", "cat"):
            (tmp_path / name / program).symlink_to(shutil.which(program) or "")
    (tmp_path / "old" / "python3").write_text("#!/bin/sh\n[ $1 = --version ] && echo Python 3.6.8\n")
    (tmp_path / "old" / "python3").chmod(0o755)
    size = (tmp_path / "a.pyz").write_bytes(reporting(tmp_path))
    (tmp_path / "node").write_text(f"""#!/bin/sh
export NODE_NAME=$1 TMPDIR={tmp_path}/temporary
shift
case $NODE_NAME in
    n3) head -c 1000 | "$@" ;;
    n4) {{ head -c 3000 | tr A B; head -c {size - 3000}; }} | "$@" ;;
    n5) PATH={tmp_path}/none "$@" ;;
    n6) PATH={tmp_path}/old "$@" ;;
    n7) exec <&-; exit 9 ;;
    *) "$@" ;;
esac
""")
    (tmp_path / "node").chmod(0o755)

    def made(name: str, text: str) -> dict[str, str]:
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n".replace("NODE", f"{tmp_path}/node"))
        (tmp_path / name).chmod(0o755)
        return {"PATH": f"{tmp_path}:{os.path.dirname(sys.executable)}:/usr/bin:/bin"}

    return made


FAILURES = {
    "n3": "the bundle arrived damaged, 1000 of",
    "n4": "the bundle arrived damaged",
    "n5": f"on its PATH is no Python {VERSION}; python3 is not there",
    "n6": f"on its PATH is no Python {VERSION}; python3 is Python 3.6.8",
}
SSH = """for word; do last=$word; case "$word" in n[0-9]*) host=$word;; esac; done
exec NODE $host sh -c "$last\""""
SRUN = """case "$*" in *" true") exit ;; esac
cat > FOLDER/given
while [ "$1" != timeout ]; do shift; done
for host in n1 n2 n3 n4 n5 n6 n7; do
    NODE $host "$@" <FOLDER/given || echo "srun: error: $host: task 1: Exited with exit code $?" >&2
done"""
MPIRUN = """[ "$1" != --version ] || { echo 'mpirun (Open MPI) 4.1.6'; exit; }
while [ "$1" != sh ]; do shift; done
for host in n1 n2 n5 n6; do NODE $host "$@"; done"""


@pytest.mark.parametrize("engine", ["ssh", "srun", "mpirun"])
def test_nodes_get_a_bundle_and_keep_nothing(
    engine: str, cluster: Callable[[str, str], dict[str, str]], tmp_path: Path
) -> None:
    text = {"ssh": SSH, "srun": SRUN, "mpirun": MPIRUN}[engine].replace("FOLDER", str(tmp_path))
    words = {"ssh": ("--hosts", "n[1-7]"), "srun": ("--slurm",), "mpirun": ("--mpi",)}[engine]
    slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-7]"} if engine == "srun" else {}
    done = backends(
        "fleet", "run", *words, "--push", str(tmp_path / "a.pyz"), "--format", "json", "--timeout", "20",
        environment=cluster(engine, text) | slurm,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    fleet = json.loads(done.stdout)
    assert sorted(fleet["configurations"][0]["nodes"]) == ["n1", "n2"]
    assert not fleet["repeated"]
    errors = {node: group["error"] for group in fleet["silent"] for node in group["nodes"]}
    wanted = {"n5", "n6"} if engine == "mpirun" else {"n3", "n4", "n5", "n6", "n7"}
    assert errors.keys() == wanted
    for node in wanted - {"n7"}:
        assert FAILURES[node] in errors[node]
    given = (tmp_path / "words-n1").read_text()
    start = ["fleet", "envelope", "--timeout", "20", "--", "info", "--python"]
    assert given.startswith(str(start)[:-1]) and PYTHON not in given
    assert leftovers(tmp_path / "temporary") == []


def test_workers_of_ray_and_dask_run_a_bundle(tmp_path: Path) -> None:
    data = small("import sys\nprint('ran', *sys.argv[1:])")
    node, status, error, output = payload.run(bundle.pushing(data, ("info", "a b")), 60.0, data)
    assert (node, status, error, output) == (payload.node_name(), "ok", "", "ran info a b\n")
    _, status, error, _ = payload.run(bundle.pushing(data, ("info",)), 60.0, data[:-1])
    assert status == "error" and "the bundle arrived damaged" in error


def test_what_cannot_be_pushed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no bundle")
    with zipfile.ZipFile(tmp_path / "other", "w") as file:
        file.writestr("a", "b")
    with zipfile.ZipFile(tmp_path / "changed", "w") as file:
        file.writestr(
            "bundle.json", '{"targets": [{"python": "3.11", "platform": "linux_x86_64", "parts": []}]}'
        )
        file.writestr("content", "some bytes")
    changed = (tmp_path / "changed").read_bytes().replace(b"some bytes", b"same bytes")
    (tmp_path / "changed").write_bytes(changed)
    for words, error in [
        (("--hosts", "n1", "--push", str(tmp_path / "text")), "is not a bundle, or is damaged"),
        (("--hosts", "n1", "--push", str(tmp_path / "other")), "is not a bundle, or is damaged"),
        (("--hosts", "n1", "--push", str(tmp_path / "changed")), "is not a bundle, or is damaged"),
        (("--hosts", "n1", "--push", str(tmp_path)), "is not a bundle, or is damaged"),
        (("--hosts", "n1", "--push", str(tmp_path / "absent")), "cannot be read: No such file"),
    ]:
        done = backends("fleet", "run", *words)
        assert (done.returncode, error in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--platform", "win_amd64"), "is not a platform of Linux or macOS"),
        (("--platform", "manylinux_2_28_x86_64", "--python-version", "3.10"), "is not a version of Python"),
        (("--no-index",), "are for --platform"),
        (("--output", f"{__file__}/a.pyz"), "a.pyz cannot be written"),
    ],
)
def test_what_cannot_be_bundled_is_refused(words: tuple[str, ...], error: str) -> None:
    done = backends("fleet", "bundle", *words)
    assert (done.returncode, error in done.stderr) == (2, True), done.stderr


def wheel(folder: Path, tag: str, *, changed: bool = False) -> None:
    """Write a wheel of backends for a platform, with a program that prints its tag."""
    info = f"mlbackends-{__version__}.dist-info"
    files = {
        "mlbackends/__init__.py": b"",
        "mlbackends/__main__.py": f"print({tag!r})".encode(),
        f"mlbackends-{__version__}.data/platlib/mlbackends/library": b"1",
        f"mlbackends-{__version__}.data/data/share/man/page": b"1",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: mlbackends\nVersion: {__version__}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow((name, f"sha256={digest}", len(data)))
    writer.writerow((f"{info}/RECORD", "", ""))
    with zipfile.ZipFile(folder / f"mlbackends-{__version__}-{tag}.whl", "w") as file:
        for name, data in files.items():
            file.writestr(name, data + b" " * (changed and name.endswith("__main__.py")))
        file.writestr(f"{info}/RECORD", rows.getvalue())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="tags of Linux")
def test_pip_brings_the_wheels_of_each_platform(tmp_path: Path) -> None:
    machine = platform.machine()
    ours, other = f"py3-none-manylinux_2_17_{machine}", "py3-none-manylinux2014_riscv64"
    wheel(tmp_path, ours)
    wheel(tmp_path, other)
    words = ["fleet", "bundle", "--python-version", VERSION, "--no-index", "--find-links", str(tmp_path)]
    file = tmp_path / "a.pyz"
    platforms = ("--platform", f"manylinux_2_28_{machine}", "--platform", "manylinux_2_28_riscv64")
    home = {"HOME": str(tmp_path)}  # pip starts rustc if it finds it, which may write there
    done = backends(*words, *platforms, "--output", str(file), environment=home)
    assert done.returncode == 0, done.stderr
    assert f"Python {VERSION} on manylinux_2_28_{machine}; Python" in done.stdout
    assert hashlib.sha256(file.read_bytes()).hexdigest() in done.stdout
    names = zipfile.ZipFile(file).namelist()
    assert f"parts/mlbackends-{__version__}-{ours}/mlbackends/library" in names
    assert not any("page" in name for name in names)
    ran = subprocess.run([sys.executable, "-I", str(file)], capture_output=True, text=True, check=False)
    assert ran.stdout == f"{ours}\n", ran.stderr
    absent = backends(*words, "--platform", "manylinux_2_28_s390x", "--output", str(file), environment=home)
    assert absent.returncode == 2 and "no wheels for Python" in absent.stderr
    wheel(tmp_path, ours, changed=True)
    refused = backends(*words, *platforms, "--output", str(file), environment=home)
    assert refused.returncode == 2 and "mlbackends/__main__.py is not as its RECORD says" in refused.stderr


@pytest.mark.slow
def test_what_is_installed_here_runs_without_it(tmp_path: Path) -> None:
    first, again = tmp_path / "a.pyz", tmp_path / "elsewhere" / "b.pyz"
    again.parent.mkdir()
    for file in (first, again):
        done = backends("fleet", "bundle", "--output", str(file))
        assert done.returncode == 0, done.stderr
    assert first.read_bytes() == again.read_bytes()
    python = os.path.realpath(sys.executable)
    ran = subprocess.run(
        [python, "-I", str(first), "info", "--depth", "found", "--format", "json", "--python", python],
        env={"TMPDIR": str(again.parent)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["probes"]["python"]["facts"]["executable"].endswith(os.path.basename(python))
    assert leftovers(again.parent) == ["b.pyz"]

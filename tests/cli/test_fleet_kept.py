"""`backends fleet run --keep` and `--resume`, and the commands that read what they keep."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import Raw
from running import PLAIN, backends

from mlbackends.base import registry
from mlbackends.base.errors import Incomplete
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.frames import frames
from mlbackends.fleet.store import Keeper, opened
from mlbackends.model.fleet import Envelope, Status
from mlbackends.model.history import Asked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlbackends.fleet.engines import Job, Take

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stub of ssh is a shell script")

SOUND = json.loads((Path(__file__).parents[1] / "reports/hgx-h100-sound.json").read_text("utf-8"))
#: Stands for ssh: n3 hangs where there is a file `hang`, and n4 refuses; each host that is asked is noted.
SSH = """#!/bin/sh
cd FOLDER
for word; do case "$word" in n[0-9]*) host=$word; break;; esac; done
echo $host >> asked
case $host in
    n3) if [ -e hang ]; then touch hangs; exec sleep 60; else cat n3; fi ;;
    n4) echo "ssh: connect to host n4 port 22: Connection refused" >&2; exit 255 ;;
    n5) cat n5; exit 3 ;;
    *) cat $host ;;
esac
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a stub of ssh and the frames of n1 to n5."""
    folder = tmp_path_factory.mktemp("cluster")
    for node in ("n1", "n2", "n3", "n5"):
        lines = frames(Envelope(node=node, report=Raw(msgspec.json.encode(SOUND)), exit_code=0))
        (folder / node).write_text("".join(f"{line}\n" for line in lines))
    (folder / "ssh").write_text(SSH.replace("FOLDER", str(folder)))
    (folder / "ssh").chmod(0o755)
    return folder


def path_with(cluster: Path) -> dict[str, str]:
    return {"PATH": f"{cluster}:/usr/bin:/bin", "TZ": "UTC"}


def run(cluster: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (cluster / "asked").unlink(missing_ok=True)
    return backends("fleet", "run", *words, environment=path_with(cluster))


def rows(folder: Path, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(folder / "fleet.sqlite3")) as database:
        return database.execute(query).fetchall()


@contextlib.contextmanager
def hanging(cluster: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run in which n3 hangs; yield it when all others can have answered."""
    (cluster / "hang").touch()
    (cluster / "hangs").unlink(missing_ok=True)
    folder = Path(words[words.index("--keep") + 1])
    command = [sys.executable, "-m", "mlbackends", "fleet", "run", *words]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**PLAIN, **path_with(cluster)}, **pipes) as process:
        try:
            while not (folder / "fleet.sqlite3").exists() or not (cluster / "hangs").exists():
                assert process.poll() is None, process.stderr
                time.sleep(0.02)
            for _ in range(500):
                with contextlib.suppress(sqlite3.OperationalError):
                    if rows(folder, "SELECT count(*) FROM reports")[0][0] >= 3:
                        break
                time.sleep(0.02)
            yield process
        finally:
            process.kill()
            (cluster / "hang").unlink()


def test_reports_are_kept_as_they_came_and_read_again(cluster: Path, tmp_path: Path) -> None:
    kept = tmp_path / "new" / "kept"
    done = run(cluster, "--hosts", "n[1-5]", "--expect", "n[1-6]", "--keep", str(kept), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert [file.name for file in kept.iterdir()] == ["fleet.sqlite3"]
    assert stat.S_IMODE((kept / "fleet.sqlite3").stat().st_mode) == 0o600
    found = rows(kept, "SELECT node, status, exit_code FROM reports ORDER BY node")
    assert found == [
        ("n1", "ok", 0), ("n2", "ok", 0), ("n3", "ok", 0), ("n4", "unreachable", 255), ("n5", "ok", 3),
        ("n6", "missing", None),
    ]  # fmt: skip
    again = backends("fleet", "summarize", str(kept), "--format", "json")
    first, second = json.loads(done.stdout), json.loads(again.stdout)
    assert first["silent"] == second["silent"] and first["flagged"] == second["flagged"] == {
        "n5": "exit code 3"
    }
    assert first["kinds"] == second["kinds"] and second["expected"] == [f"n{at}" for at in range(1, 7)]
    checked = backends("fleet", "doctor", str(kept), "--only", "nvidia-fabric-manager")
    assert "4 nodes" in checked.stdout, checked.stderr
    assert backends("fleet", "facts", "cpu.model_name", str(kept)).returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_came_before_an_interrupt_is_summarised_and_the_rest_can_be_asked(
    cluster: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with hanging(cluster, "--hosts", "n[1-4]", "--keep", str(tmp_path)) as process:
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    assert output.startswith("4 nodes: 2 reported, 1 unreachable, 1 missing")
    assert "interrupted; 2 nodes had reported" in errors
    assert f"backends fleet run --resume {tmp_path}" in errors
    assert rows(tmp_path, "SELECT ended FROM runs") == [(None,)]

    rest = run(cluster, "--resume", str(tmp_path), "--fail-on", "incomplete")
    assert rest.returncode == 1, rest.stderr
    assert rest.stdout.startswith("4 nodes: 3 reported, 1 unreachable; 1 configuration")
    assert sorted((cluster / "asked").read_text().split()) == ["n3", "n4"]
    assert rows(tmp_path, "SELECT id, ended > started FROM runs") == [(1, 1)]
    assert backends("fleet", "summarize", str(tmp_path)).stdout == rest.stdout


def test_a_run_that_is_killed_loses_nothing(cluster: Path, tmp_path: Path) -> None:
    with hanging(cluster, "--hosts", "n[1-4]", "--keep", str(tmp_path)) as process:
        process.kill()
        process.wait()
    done = backends("fleet", "summarize", str(tmp_path))
    assert done.stdout.startswith("4 nodes: 2 reported, 1 unreachable, 1 missing")


def test_a_run_that_has_asked_everyone_has_nobody_left(cluster: Path, tmp_path: Path) -> None:
    run(cluster, "--hosts", "n[1-3]", "--keep", str(tmp_path))
    done = run(cluster, "--resume", str(tmp_path))
    assert done.stdout.startswith("3 nodes: 3 reported")
    assert not (cluster / "asked").exists()
    more = run(cluster, "--resume", str(tmp_path), "--hosts", "n[3-5]")
    assert more.stdout.startswith("5 nodes: 4 reported, 1 unreachable")
    assert "unexpected" not in more.stdout
    assert backends("fleet", "summarize", str(tmp_path)).stdout == more.stdout
    other = run(cluster, "--resume", str(tmp_path), "--", "doctor")
    assert (other.returncode, "asked for `info`" in other.stderr) == (2, True)


def test_a_run_is_named_by_its_number_or_its_day(cluster: Path, tmp_path: Path) -> None:
    for nodes in ("n[1-3]", "n[1-2]"):
        run(cluster, "--hosts", nodes, "--keep", str(tmp_path))
    today = time.strftime("%Y-%m-%d", time.gmtime())
    for which, count in (("", 2), ("@1", 3), ("@2", 2), (f"@{today}", 2)):
        done = backends("fleet", "summarize", f"{tmp_path}{which}", environment={"TZ": "UTC"})
        assert done.stdout.startswith(f"{count} nodes: {count} reported"), done.stderr
    assert "n3: it sent nothing" in backends("fleet", "diff", f"{tmp_path}@1", str(tmp_path)).stdout
    for which in ("@3", "@2020-01-01"):
        done = backends("fleet", "summarize", f"{tmp_path}{which}")
        assert (done.returncode, f"has no run {which[1:]}" in done.stderr) == (2, True)


def test_a_full_disk_ends_the_keeping_and_not_the_run(cluster: Path, tmp_path: Path) -> None:
    code = (
        "import resource, sys; from mlbackends_cli.main import guarded_main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)); sys.exit(guarded_main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "fleet", "run", "--hosts", "n[1-3]", "--keep", str(tmp_path)],
        env={**PLAIN, **path_with(cluster)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("3 nodes: 3 reported")
    assert f"{tmp_path} cannot be written: " in done.stderr and " not kept" in done.stderr


def database(folder: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(folder / "fleet.sqlite3")) as opened:
        for statement in statements:
            opened.execute(statement)
        opened.commit()


@pytest.fixture(scope="module")
def kept(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep one run of three nodes."""
    folder = tmp_path_factory.mktemp("kept")
    run(cluster, "--hosts", "n[1-3]", "--keep", str(folder))
    return folder


@pytest.mark.parametrize("command", ["summarize", "run --hosts n1 --keep", "run --resume"])
def test_what_is_no_folder_of_kept_reports_is_refused(
    cluster: Path, kept: Path, tmp_path: Path, command: str
) -> None:
    def refused(folder: Path) -> str:
        done = backends("fleet", *command.split(), str(folder), environment=path_with(cluster))
        assert done.returncode == 2, done.stdout
        return done.stderr

    newer = shutil.copytree(kept, tmp_path / "newer")
    foreign, garbage, link, empty = (tmp_path / name for name in ("foreign", "garbage", "link", "empty"))
    for folder in (foreign, garbage, link, empty):
        folder.mkdir()
    (link / "fleet.sqlite3").symlink_to(kept / "fleet.sqlite3")
    assert "not a regular file" in refused(link)
    database(newer, "PRAGMA user_version = 2")
    assert "has version 2 of the tables; this version reads 1" in refused(newer)
    database(foreign, "CREATE TABLE other (name)")
    assert "has no database of kept reports" in refused(foreign)
    (garbage / "fleet.sqlite3").write_bytes(os.urandom(20_000))
    assert "garbage is damaged: " in refused(garbage)
    if "--resume" in command:
        assert "is not a folder of kept reports" in refused(empty)
    if "--keep" in command:
        (tmp_path / "file").touch()
        assert "file is not a folder" in refused(tmp_path / "file")


def test_no_folder_is_made_for_a_run_that_is_refused(tmp_path: Path) -> None:
    assert backends("fleet", "run", "--keep", str(tmp_path / "kept")).returncode == 2
    assert not (tmp_path / "kept").exists()


@pytest.mark.skipif(not shutil.which("unshare"), reason="this system has no unshare")
def test_a_folder_that_cannot_be_written_to_is_refused_before_the_run(
    cluster: Path, kept: Path, tmp_path: Path
) -> None:
    frozen = tmp_path / "frozen"
    frozen.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", 'mount --bind -o ro "$0" "$1"; shift; exec "$@"']
    command = [sys.executable, "-m", "mlbackends", "fleet", "run", "--hosts", "n1", "--keep", str(frozen)]
    (cluster / "asked").unlink(missing_ok=True)
    done = subprocess.run(
        [*mount, str(kept), str(frozen), *command], check=False, capture_output=True, text=True,
        env={**PLAIN, **path_with(cluster)},
    )  # fmt: skip
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip("this user may not mount")
    assert (done.returncode, "frozen cannot be written: attempt to write" in done.stderr) == (2, True)
    assert not (cluster / "asked").exists()


def test_a_damaged_database_is_one_line(cluster: Path, kept: Path, tmp_path: Path) -> None:
    file = shutil.copytree(kept, tmp_path / "kept") / "fleet.sqlite3"
    data = file.read_bytes()
    for at in range(4096, len(data), 4096):
        file.write_bytes(data[:at] + os.urandom(4096) + data[at + 4096 :])
        words = (("summarize",), ("run", "--resume"))[at // 4096 % 2]
        done = backends("fleet", *words, str(file.parent), environment=path_with(cluster))
        assert done.returncode in {0, 2}, done.stderr
        assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize(
    "change",
    [
        "runs SET asked = 'x'", "runs SET asked = '{}'", "runs SET expected = '{}'", "runs SET started = 'x'",
        "runs SET expected = x'ff'", "runs SET started = 1e300", "reports SET status = 'x'",
        "contents SET data = x'00'", "contents SET data = 7",
    ],
)  # fmt: skip
def test_values_of_other_types_are_refused(kept: Path, tmp_path: Path, change: str) -> None:
    folder = shutil.copytree(kept, tmp_path / "kept")
    database(folder, f"UPDATE {change}")
    done = backends("fleet", "summarize", str(folder))
    assert (done.returncode, "cannot be read" in done.stderr) == (2, True), done.stderr


def test_two_runs_fill_one_folder_at_once(cluster: Path, tmp_path: Path) -> None:
    with hanging(cluster, "--hosts", "n[1-4]", "--keep", str(tmp_path)) as process:
        assert run(cluster, "--hosts", "n[1-2]", "--keep", str(tmp_path)).returncode == 0
        process.send_signal(signal.SIGINT)
        process.wait(30)
    found = rows(tmp_path, "SELECT run, count(*) FROM reports GROUP BY run ORDER BY run")
    assert found == [(1, 3), (2, 2)]
    assert [file.name for file in tmp_path.iterdir()] == ["fleet.sqlite3"]


def test_the_answer_that_counts_is_kept(tmp_path: Path) -> None:
    collection = Collection()
    report = Raw(msgspec.json.encode(SOUND))
    answers = [
        Envelope(node="late", status=Status.TIMEOUT, error="no answer"),
        Envelope(node="late", report=report, exit_code=10**30),
        Envelope(node="late", report=Raw(b"{}")),
        Envelope(node="sick", report=report, exit_code=0),
        Envelope(node="sick", status=Status.ERROR, error="exit code 3"),
    ]
    with opened(str(tmp_path), writes=True, creates=True) as folder:
        keeper = Keeper(folder, Asked("hosts", "", (), "", "", 60.0, 64), None)
        for envelope in answers:
            before = len(collection.nodes)
            node = collection.add(envelope)
            keeper.add(node, envelope, collection, is_new=len(collection.nodes) > before)
        kept = [*folder.envelopes(1)]
    late, sick = kept
    assert (late.status, late.error, late.report, late.exit_code) == ("ok", "no answer", report, None)
    assert (sick.status, sick.error, sick.report, sick.exit_code) == ("ok", "exit code 3", report, 3)
    assert rows(tmp_path, "SELECT count(*) FROM contents") == [(2,)]


@pytest.mark.parametrize("comes", [True, False])
def test_an_engine_that_dies_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, comes: bool
) -> None:
    added = ModuleType("dying_engine")

    def dies(job: Job, take: Take) -> None:
        del job
        if comes:
            take(Envelope(node="n1", report=Raw(msgspec.json.encode(SOUND))))
        raise Incomplete("the scheduler stopped")

    vars(added).update(run=dies)
    monkeypatch.setitem(sys.modules, "dying_engine", added)
    monkeypatch.setattr(registry, "_entry_points", lambda: {"mlbackends.engines": {"dying": "dying_engine"}})
    registry.names.cache_clear()
    registry.load.cache_clear()
    done = backends("fleet", "run", "--engine", "dying", "--expect", "n[1-2]", "--keep", str(tmp_path))
    assert (done.returncode, "the scheduler stopped" in done.stderr) == (3, True)
    assert done.stdout.startswith("2 nodes: 1 reported, 1 missing") is comes
    assert rows(tmp_path, "SELECT run, node FROM reports") == ([(1, "n1")] if comes else [])
    again = backends("fleet", "run", "--resume", str(tmp_path))
    # A run from which nothing came is not kept.
    assert (again.returncode, ("stopped" if comes else "has no runs") in again.stderr) == (
        3 if comes else 2,
        True,
    )

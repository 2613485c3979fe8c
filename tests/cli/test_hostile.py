"""An environment may be as strange as it likes: the command answers, and its exit code tells the truth."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from running import backends_alone

from mlbackends.base import registry

HANG = "#include <unistd.h>\n__attribute__((constructor)) void f(void) { for (;;) pause(); }"
NAMES = ("libnccl.so.2", "libcudnn.so.9", "libOpenCL.so.1", "libvulkan.so.1", "libfftw3.so.3")


def in_shell(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a shell's script in which $BACKENDS is the command."""
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd="/",
        timeout=120,
        env={**os.environ, "BACKENDS": f"{sys.executable} -m mlbackends", **variables},
    )


def hanging(folder: Path) -> Path:
    """Compile libraries of known names that hang when they are opened."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make the fake library with")
    source = folder / "hang.c"
    source.write_text(HANG)
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in NAMES:
        command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}"]
        subprocess.run([*command, "-o", libraries / name, source], check=True)
    return libraries


@pytest.mark.parametrize("what", ["--version", "--help", "fleet", "info python"])
@pytest.mark.parametrize(
    ("closed", "code"), [("<&-", 0), (">&-", 2), ("<&- >&- 2>&-", 2)], ids=["in", "out", "all"]
)
def test_a_closed_output_is_an_error_and_a_closed_input_is_none(what: str, closed: str, code: int) -> None:
    done = in_shell(f"$BACKENDS {what} {closed}")

    assert done.returncode == code
    shown = "backends: standard output cannot be written: Bad file descriptor\n"
    assert done.stderr == (shown if closed == ">&-" else "")


def test_a_closed_output_that_is_not_needed_is_no_error(tmp_path: Path) -> None:
    done = in_shell('$BACKENDS info python --output "$FILE" >&-', FILE=str(tmp_path / "report"))

    assert (done.returncode, done.stderr) == (0, "")
    assert "python" in (tmp_path / "report").read_text()


def test_a_deleted_folder_can_be_the_current_one(tmp_path: Path) -> None:
    script = 'mkdir "$WHERE"; cd "$WHERE"; rmdir "$WHERE"; $BACKENDS info python --get python.presence'

    done = in_shell(script, WHERE=str(tmp_path / "gone"))

    assert done.stdout == "found\n"


def test_without_texts_in_the_code_the_schema_is_still_made() -> None:
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "mlbackends", "schema", "report"],
        capture_output=True,
        check=False,
        cwd="/",
    )

    assert done.returncode == 0
    assert set(json.loads(done.stdout)["$defs"]["Report"]["properties"]["probes"]["properties"]) == {
        *registry.names("mlbackends_probes")
    }


def test_one_folder_that_is_not_utf8_costs_the_others_nothing(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", os.fsencode(tmp_path) + b"/bad\xff"
    good.mkdir()
    os.mkdir(bad)
    (good / "libnccl.so.2").write_bytes(b"no library")
    environment = {**os.environb, b"LD_LIBRARY_PATH": os.fsencode(good) + b":" + bad}

    done = subprocess.run(
        [sys.executable, "-m", "mlbackends", "info", "nccl", "--format", "json"],
        capture_output=True,
        check=False,
        cwd="/",
        env=environment,
    )

    libraries = json.loads(done.stdout)["probes"]["nccl"]["libraries"]
    assert [Path(library["path"]).name for library in libraries] == ["libnccl.so.2"]


def test_a_link_to_a_name_that_is_not_utf8_can_be_told(tmp_path: Path) -> None:
    os.symlink(b"/nowhere/\xff.so", os.fsencode(tmp_path / "libnccl.so.2"))

    done = in_shell("$BACKENDS info nccl --format json", LD_LIBRARY_PATH=str(tmp_path))

    (library,) = json.loads(done.stdout)["probes"]["nccl"]["libraries"]
    assert library["reasons"][0]["code"] == "dangling-link"
    assert "/nowhere/\ufffd" in library["reasons"][0]["message"]


def test_pipes_and_devices_with_names_of_libraries_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libnccl.so.2")
    (tmp_path / "libcudnn.so.9").symlink_to("/dev/zero")
    package = tmp_path / "odd-1.0.dist-info"
    package.mkdir()
    for name in ("entry_points.txt", "METADATA", "RECORD", "WHEEL", "direct_url.json"):
        os.mkfifo(package / name)

    done = in_shell(
        "$BACKENDS info nccl cudnn packages --format json",
        LD_LIBRARY_PATH=str(tmp_path),
        PYTHONPATH=str(tmp_path),
    )

    probes = json.loads(done.stdout)["probes"]
    for name in ("nccl", "cudnn"):
        assert probes[name]["libraries"][0]["reasons"][0]["code"] == "not-a-library"
    assert "failure" not in probes["packages"]


def test_a_broken_hazard_or_command_of_another_package_costs_itself_alone(tmp_path: Path) -> None:
    package = tmp_path / "adder-1.0.dist-info"
    package.mkdir()
    (package / "entry_points.txt").write_text(
        "[mlbackends.audit.hazards]\nbroken_hazard = no_such_module\n"
        "[mlbackends.cli.commands]\nhello = hello_command\nbroken = no_such_module\n"
    )
    (tmp_path / "hello_command.py").write_text(
        '"""Print a greeting."""\nimport click\n'
        "@click.command()\ndef command(): click.echo('good morning')\n"
    )
    path = {"PYTHONPATH": str(tmp_path)}

    host = str(Path(__file__).parents[1] / "hosts" / "wsl1-laptop.machine")
    judged = backends_alone("doctor", host, "--format", "json", environment=path)
    checks = {check["code"]: check for check in json.loads(judged.stdout)["checks"]}
    assert checks["broken-hazard"]["status"] == "unknown"
    assert "No module named 'no_such_module'" in checks["broken-hazard"]["message"]
    assert len(checks) > 100
    assert "Print a greeting." in backends_alone("--help", environment=path).stdout
    assert backends_alone("hello", environment=path).stdout == "good morning\n"
    failed = backends_alone("broken", environment=path)
    assert failed.returncode == 2
    assert "the command broken cannot be imported: ModuleNotFoundError" in failed.stderr
    explained = backends_alone("explain", "hazards", environment=path)
    assert "It cannot be imported" in explained.stdout


def test_an_addition_that_cannot_be_imported_is_its_own_failure(tmp_path: Path) -> None:
    package = tmp_path / "adder-1.0.dist-info"
    package.mkdir()
    (package / "entry_points.txt").write_text(
        textwrap.dedent("""
            [console_scripts]
            other = nothing:main
            [mlbackends.probes]
            # a comment = with a sign
            broken = there_is_no_such_module
            works = adder_module : inner.probe [extra1, extra2]
            wrong = adder_module:wrong
            cpu = there_is_no_such_module
            ../odd = adder_module
            [mlbackends.kernels]
            elsewhere = adder_module
        """)
    )
    (tmp_path / "adder_module.py").write_text(
        textwrap.dedent("""
            from mlbackends.model.records import Finding, Presence
            class inner:
                class probe:
                    'Something: that is added.'
                    def find(host): return Finding(presence=Presence.FOUND, version="3")
            class wrong:
                'Something: that is wrong.'
                def find(host): return ["no finding"]
        """)
    )

    added = {"PYTHONPATH": str(tmp_path)}
    done = backends_alone("info", "--format", "json", "--depth", "found", environment=added)
    table = backends_alone("info", "broken", "works", "wrong", environment=added)
    strict = backends_alone("info", "broken", "--strict", environment=added)

    probes = json.loads(done.stdout)["probes"]
    assert probes["works"]["version"] == "3"
    assert "there_is_no_such_module" in probes["broken"]["failure"]["message"]
    assert "list" in probes["wrong"]["failure"]["message"]
    assert "failure" not in probes["cpu"]
    assert not {"../odd", "elsewhere", "other"} & set(probes)
    assert table.returncode == 0
    assert strict.returncode == 3


@pytest.mark.parametrize(
    "moment", [0.2, *(pytest.param(number, marks=pytest.mark.slow) for number in (0.1, 0.3, 0.6))]
)
def test_an_interrupt_at_any_moment_leaves_no_process(tmp_path: Path, moment: float) -> None:
    libraries = hanging(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "mlbackends", "info"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
    )
    time.sleep(moment)

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    deadline = time.monotonic() + 60
    while (left := with_environment(str(libraries))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert process.returncode not in (0, 70)  # 1 where Python itself was still starting


def with_environment(text: str) -> list[int]:
    """Return the processes in whose environment a text stands."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdecimal() and text.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.append(int(entry))
        except OSError:
            continue
    return found


def test_a_command_that_prints_for_ever_is_stopped() -> None:
    from mlbackends.host import command

    before = psutil.Process().children()

    def outcome(program: str) -> command.Outcome:
        return command.outcome_of((sys.executable, "-S", "-c", program), 60.0, os.environ)

    assert outcome("while True: print('y' * 65536)") == (None, "", False)
    assert outcome("print('one'); raise SystemExit(3)").status == 3
    assert outcome("print('one', end='')") == (0, "one", False)
    assert psutil.Process().children() == before


def test_a_report_without_home_and_user_variables_hides_them_too() -> None:
    pwd = pytest.importorskip("pwd")

    home = pwd.getpwuid(os.geteuid()).pw_dir
    if len(home) < 3:
        pytest.skip("this user has no home folder")
    done = subprocess.run(
        [sys.executable, "-m", "mlbackends", "info", "python", "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": f"{home}/somewhere"},
    )

    assert f'"{home}/' not in done.stdout


def test_what_an_added_package_raises_is_one_line(tmp_path: Path) -> None:
    package = tmp_path / "adder-1.0.dist-info"
    package.mkdir()
    (package / "entry_points.txt").write_text(
        "[mlbackends.engines]\nempty = added\n[mlbackends.cli.commands]\nodd = added\nleaves = leaver\n"
        "[mlbackends.probes]\nstrange = added\nleaver = leaver\n"
    )
    (tmp_path / "leaver.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "added.py").write_text(
        "import click\nclass Odd(BaseException): pass\n"
        "def find(host): raise Odd('on purpose')\n"
        "@click.command()\ndef command(): raise Odd('on purpose')\n"
    )
    path = {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}

    engine = backends_alone("fleet", "run", "--engine", "empty", environment=path)
    odd = backends_alone("odd", environment=path)
    leaves = backends_alone("leaves", environment=path)
    told = backends_alone("info", "strange", "leaver", "python", "--format", "json", environment=path)

    assert (engine.returncode, "it defines no function `run`" in engine.stderr) == (2, True)
    assert (odd.returncode, "this is a bug" in odd.stderr) == (70, True)
    assert (leaves.returncode, "cannot be imported: SystemExit" in leaves.stderr) == (2, True)
    probes = json.loads(told.stdout)["probes"]
    assert "Odd: on purpose" in probes["strange"]["failure"]["message"]
    assert "SystemExit" in probes["leaver"]["failure"]["message"]
    for done in (engine, odd, leaves, told):
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("gone", ["/proc /sys", "/sys", "/tmp /var/tmp /dev/shm"])
def test_a_machine_may_lack_what_others_have(gone: str) -> None:
    """Folders are empty, as /proc in some chroots, or read-only: no place for temporary files."""
    lock = "mount --bind {0} {0} && mount -o remount,bind,ro {0}"  # this Python may be in there
    how = lock if "tmp" in gone else "mount -t tmpfs -o ro none {0}"
    hide = "; ".join(how.format(folder) for folder in gone.split() if os.path.isdir(folder))
    commands = (
        "top --once",
        "sdpa check --shape 1,1,8,8 --backend math",
        "info python",
        "fleet envelope -- info python",
    )
    script = f"cd /; umount -l /sys /proc; {hide}; " if "/proc" in gone else f"cd /sys; {hide}; "
    script += "; ".join(f"$BACKENDS {command}; echo code $?" for command in commands)
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount anything")

    environment = {
        **os.environ,
        "BACKENDS": f"{sys.executable} -m mlbackends",
        "TMPDIR": "/nonexistent",
    }
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script],
        capture_output=True, text=True, check=False, env=environment, timeout=120,
    )  # fmt: skip

    codes = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("code ")]
    assert len(codes) == len(commands)
    assert set(codes) <= {0, 1, 2, 3}, done.stderr
    assert not {"Traceback", "bug in"} & {word for word in ("Traceback", "bug in") if word in done.stderr}


@pytest.mark.parametrize(
    "what",
    [
        "trace show -",
        "trace diff - -",
        "fleet summarize -",
        "audit --policy -",
        "sdpa explain --problems -",
    ],
)
def test_without_standard_input_there_is_nothing_to_read(what: str) -> None:
    done = in_shell(f"$BACKENDS {what} <&-")

    assert done.returncode in (1, 2, 3)
    assert not [word for word in ("Traceback", "bug in") if word in done.stderr]

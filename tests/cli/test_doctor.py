"""`backends doctor`, as a user runs it: on recorded machines, on saved reports, and live."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from running import PLAIN, backends

if TYPE_CHECKING:
    from collections.abc import Callable

    FakeLibrary = Callable[..., Path]

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
BROKEN = str(HOSTS / "broken-environment.machine")


@pytest.fixture(scope="module")
def two_runtimes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a report of one probe, which warns."""
    data = json.loads(backends("info", "--root", BROKEN, "--format", "json", "openmp").stdout)
    data["probes"]["openmp"]["warnings"] = [
        {"code": "conflict", "message": "libgomp and libiomp5 meet", "hint": "share one"}
    ]
    file = tmp_path_factory.mktemp("reports") / "report.json"
    file.write_text(json.dumps(data))
    return str(file)


def checks(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = backends("doctor", "--format", "json", *arguments)
    assert done.stderr == ""
    return done.returncode, {check["code"]: check for check in json.loads(done.stdout)["checks"]}


@pytest.mark.parametrize(("fail_on", "code"), [("note", 1), ("warning", 1), ("error", 0), ("never", 0)])
def test_fail_on_says_what_is_exit_1(two_runtimes: str, fail_on: str, code: int) -> None:
    done = backends("doctor", "--only", "openmp-two-runtimes", "--fail-on", fail_on, two_runtimes)

    assert done.returncode == code
    assert "! warning openmp-two-runtimes" in done.stdout


def test_ignored_codes_are_left_out(two_runtimes: str) -> None:
    code, found = checks("--ignore", "openmp-two-runtimes", "--fail-on", "never", two_runtimes)

    assert code == 0
    assert found and "openmp-two-runtimes" not in found


def test_what_the_report_does_not_tell_is_not_checked_and_strict_is_exit_3(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    backends("info", "--root", BROKEN, "--format", "json", "--output", str(report), "cpu")
    options = ("--only", "openmp-two-runtimes", str(report))

    code, found = checks(*options)
    strict = backends("doctor", "--strict", *options)

    assert code == 0
    assert found["openmp-two-runtimes"]["status"] == "unknown"
    assert strict.returncode == 3
    assert "the report has no openmp" in strict.stdout


@pytest.mark.slow
def test_the_live_machine_is_judged() -> None:
    done = backends("doctor", "--depth", "found", "--fail-on", "never", "--all")

    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("Known hazards, this machine: ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "openmp-two-runtime"), "openmp-two-runtimes"),
        (("--ignore", "openmp_two_runtimes"), "openmp-two-runtimes"),
        (("/no/report.json",), "/no/report.json cannot be read: No such file or directory"),
        (
            ("--timeout", "nan"),
            "invalid value nan for --timeout; it must be a number from 0.01 to 3600",
        ),
        (("--timeout", "0"), "0"),
        (("--format", "xml"), "junit"),
        (("--fail-on", "fatal"), "warning"),
        (("--python", sys.executable, BROKEN), "it cannot be combined with FILE or DIR"),
        (("--output", "/no/folder/outcome", "--only", "openmp-two-runtimes", BROKEN), "cannot be"),
    ],
    ids=lambda each: " ".join(each)[:40] if isinstance(each, tuple) else "",
)
def test_a_wrong_question_is_exit_2_and_says_what_is_right(arguments: tuple[str, ...], said: str) -> None:
    done = backends("doctor", *arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_name_that_is_not_utf8_is_survived(two_runtimes: str, tmp_path: Path) -> None:
    file = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")
    Path(file).write_bytes(Path(two_runtimes).read_bytes())

    for form in ("json", "junit", "sarif", "gitlab", "prometheus", "html"):
        assert backends("doctor", "--format", form, file).returncode in (0, 1)


def test_a_process_that_runs_is_judged_by_what_it_has() -> None:
    program = "import time; print('ready', flush=True); time.sleep(600)"
    environment = {**PLAIN, "MKL_DEBUG_CPU_TYPE": "5", "KMP_DUPLICATE_LIB_OK": "TRUE"}
    command = [sys.executable, "-S", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        done = backends("doctor", "--pid", str(process.pid), "--only", "kmp-duplicate-lib-ok")
        process.kill()

    assert "kmp-duplicate-lib-ok" in done.stdout
    assert f"process {process.pid}" in done.stdout
    # A variable is read when a process starts.
    words = " ".join(re.findall(r"[^\s│]+", done.stdout))
    assert f"remove the second runtime instead; then start process {process.pid} anew" in words
    removal = "Remove-Item Env:" if os.name == "nt" else "unset "
    assert f"{removal}KMP_DUPLICATE_LIB_OK" in words


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="it needs two CPUs",
)
def test_a_cure_names_the_process_that_is_sick() -> None:
    first = min(os.sched_getaffinity(0))
    program = f"import os, time; os.sched_setaffinity(0, [{first}]); print(flush=True); time.sleep(600)"
    command = [sys.executable, "-S", "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=PLAIN) as process:
        assert process.stdout is not None
        process.stdout.readline()
        arguments = ("--pid", str(process.pid), "--only", "affinity-one-cpu", "--format", "json")
        done = backends("doctor", *arguments)
        process.kill()

    (check,) = json.loads(done.stdout)["checks"]
    assert re.fullmatch(rf"taskset -acp \S+ {process.pid}", check["command"])


def test_what_a_process_has_mapped_was_opened_by_it(fake_library: FakeLibrary) -> None:
    source = "int ncclGetVersion(int *v) { *v = 22005; return 0; }"
    library = fake_library("mapped", "libnccl.so.2", source=source)
    program = f"import ctypes, time; ctypes.CDLL({str(library)!r}); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        done = backends("doctor", "--pid", str(process.pid), "--only", "library-broken", "--strict")
        process.kill()

    assert (done.returncode, "not checked" in done.stdout.lower()) == (0, False)

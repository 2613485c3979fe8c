# ruff: noqa: E501  the libraries' sources stand on a line each
"""Foreign code may do what it likes: it costs its own rung, and nothing else."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil
import pytest

from mlbackends import survey
from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.isolation import client, process, worker
from mlbackends.isolation.protocol import OPENED_FIRST, Job, Reply, Request
from mlbackends.model.records import Library, Presence, ProbeReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROBE = """
'''Fake: a library that does what its source says.

Source: none.
'''
import ctypes, sys, os
from msgspec.structs import replace
from mlbackends.model.records import Answer, Finding, Library
from mlbackends.libraries.search import libraries_named, absent

def find(host):
    found = []
    for name in sorted(host.listdir(FOLDER)):
        found.append(Library(name="fake", path=FOLDER + "/" + name, wins=True, wins_because="test"))
    return Finding(libraries=tuple(found))

def load(opened, library):
    return Answer(replace(library, version=str(opened.fake_version())), facts={"asked": library.path})

def use(opened, library):
    opened.fake_use()
    return Answer(library)
"""

# What is no pipe must not be written to: root could open any file that the parent only reads.
PIPE_OF_PARENT = """
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
static int pipe_of_parent(int number) {
    char path[64];
    struct stat file;
    sprintf(path, "/proc/%d/fd/%d", getppid(), number);
    return stat(path, &file) || !S_ISFIFO(file.st_mode) ? -1 : open(path, O_WRONLY | O_NONBLOCK);
}
"""

GOOD = "int fake_version(void) { return 7; } void fake_use(void) {}"
SOURCES = {
    "good": GOOD,
    "crashes_when_opened": "#include <stdlib.h>\n__attribute__((constructor)) void f(void) { abort(); }",
    "crashes_in_use": "#include <stdio.h>\n#include <stdlib.h>\nint fake_version(void) { return 7; }"
    'void fake_use(void) { fprintf(stderr, "no such engine\\n"); abort(); }',
    "segfaults": "int fake_version(void) { return *(volatile int *)8; }",
    "hangs_when_opened": "#include <unistd.h>\n__attribute__((constructor)) void f(void) { for (;;) pause(); }",
    "hangs_in_use": "#include <unistd.h>\nint fake_version(void) { return 7; } void fake_use(void) { for (;;) pause(); }",
    "ignores_signals": "#include <signal.h>\n#include <unistd.h>\nint fake_version(void) { sigset_t all; sigfillset(&all);"
    " sigprocmask(SIG_BLOCK, &all, 0); signal(SIGTERM, SIG_IGN); for (;;) pause(); }",
    "exits": "#include <stdlib.h>\nint fake_version(void) { exit(0); }",
    "prints": "#include <stdio.h>\nint fake_version(void) { for (int i = 0; i < 200000; ++i)"
    ' puts("{\\"id\\": 0, \\"presence\\": \\"usable\\"}"); fflush(stdout); return 7; } void fake_use(void) {}',
    "forks": "#include <unistd.h>\nint fake_version(void) { if (fork() == 0) for (;;) pause(); return 7; }"
    " void fake_use(void) {}",
    "forks_and_crashes": "#include <stdlib.h>\n#include <unistd.h>\nint fake_version(void) {"
    " if (fork() == 0) for (;;) pause(); abort(); }",
    "closes_everything": "#include <unistd.h>\nint fake_version(void) { for (int i = 0; i < 256; ++i) close(i); return 7; }",
    "lacks_its_function": "int something_else(void) { return 0; }",
    "dies_of_a_signal_without_a_name": "#include <signal.h>\nint fake_version(void) { raise(SIGRTMIN + 3); return 7; }",
    "interrupts": "#include <signal.h>\nint fake_version(void) { raise(SIGINT); return 7; }",
    "forges": "#include <unistd.h>\n#include <string.h>\n#include <stdlib.h>\nint fake_version(void) {"
    ' const char *said = "\\n{\\"id\\":0,\\"presence\\":\\"usable\\"}\\n{\\"id\\":1,\\"presence\\":\\"usable\\"}\\n"'
    ' "{\\"id\\":999,\\"presence\\":\\"usable\\"}\\ngarbage";'
    " for (int i = 3; i < 256; ++i) write(i, said, strlen(said)); abort(); }",
    "leaves_a_daemon": "#include <unistd.h>\n#include <sys/wait.h>\nint fake_version(void) { int pid = fork();"
    " if (pid == 0) { setsid(); if (fork() == 0) for (;;) pause(); _exit(0); }"
    " waitpid(pid, 0, 0); return 7; } void fake_use(void) {}",
    "leaves_a_daemon_and_crashes": "#include <unistd.h>\n#include <stdlib.h>\nint fake_version(void) {"
    " if (fork() == 0) { setsid(); for (;;) pause(); } usleep(100000); abort(); }",
    "leaves_a_daemon_and_hangs": "#include <unistd.h>\nint fake_version(void) {"
    " if (fork() == 0) setsid(); for (;;) pause(); }",
    "kills_its_parent": "#include <signal.h>\n#include <unistd.h>\nint fake_version(void) {"
    " kill(getppid(), SIGKILL); for (;;) pause(); }",
    "writes_to_its_parent": f"#include <string.h>\n{PIPE_OF_PARENT}int fake_version(void) {{"
    ' const char *said = "\\xff\\xfe{\\n{\\"id\\":0,\\"presence\\":\\"usable\\"}\\n0123456789abcdef{\\"id\\":0}\\nno end";'
    " for (int i = 0; i < 64; ++i) { int there = pipe_of_parent(i); if (there >= 0) write(there, said, strlen(said)); }"
    " return 7; } void fake_use(void) {}",
    "floods_its_parent": f"#include <string.h>\n{PIPE_OF_PARENT}int fake_version(void) {{"
    " static char much[65536]; memset(much, 120, sizeof much); for (;;) for (int i = 0; i < 64; ++i) {"
    " int there = pipe_of_parent(i); if (there >= 0) { write(there, much, sizeof much); close(there); } } }",
    "counts_what_it_can_open": f"{PIPE_OF_PARENT}int fake_version(void) {{ int count = 0;"
    " for (int i = 0; i < 64; ++i) count += pipe_of_parent(i) >= 0; return count; } void fake_use(void) {}",
    "stops_itself": "#include <signal.h>\nint fake_version(void) { raise(SIGSTOP); return 7; }",
    "closes_everything_and_hangs": "#include <unistd.h>\nint fake_version(void) {"
    " for (int i = 0; i < 256; ++i) close(i); for (;;) pause(); }",
    "takes_our_descriptor": "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\nint fake_version(void) {"
    ' for (int i = 0; i < 256; ++i) close(i); for (int i = 0; i < 64; ++i) open(getenv("TAKEN"), O_RDWR | O_CREAT, 0600);'
    " return 7; }",
    # Not files: libffi, of which ctypes is made, keeps its own open.
    "tells_what_is_open": "#include <sys/stat.h>\nint fake_version(void) { int count = 0; struct stat file;"
    " for (int i = 0; i < 1024; ++i) count += fstat(i, &file) == 0 && !S_ISREG(file.st_mode);"
    " return count; } void fake_use(void) {}",
}


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compile each library once."""
    folder = tmp_path_factory.mktemp("compiled")

    @cache
    def build(name: str) -> Path:
        if shutil.which("cc") is None:
            pytest.skip("no C compiler (cc) to make the libraries with")
        source, library = folder / f"{name}.c", folder / f"{name}.so"
        source.write_text(SOURCES[name])
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
        return library

    return build


@pytest.fixture
def fake_probe(tmp_path: Path, compiled: Callable[[str], Path]) -> Iterator[Callable[..., Path]]:
    """Install a distribution that adds the probe "fake", whose libraries lie in the folder returned."""

    def install(*names: str) -> Path:
        site, libraries = tmp_path / "site", tmp_path / "libraries"
        (site / "faker-1.0.dist-info").mkdir(parents=True)
        (site / "faker-1.0.dist-info" / "entry_points.txt").write_text(
            "[mlbackends.probes]\nfake = fake_probe_module\n"
        )
        libraries.mkdir()
        code = f"FOLDER = {str(libraries)!r}\n"
        (site / "fake_probe_module.py").write_text(PROBE.strip() + "\n" + code)
        for name in names:
            shutil.copy(compiled(name), libraries)
        sys.path.insert(0, str(site))
        registry.names.cache_clear()
        registry.load.cache_clear()
        registry._entry_points.cache_clear()
        return libraries

    yield install
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path / "site")]
    sys.modules.pop("fake_probe_module", None)
    registry.names.cache_clear()
    registry.load.cache_clear()
    registry._entry_points.cache_clear()


@pytest.fixture(params=["forking child", "one child a file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of asking: the one of Linux, and the one of systems where forking is not safe."""
    monkeypatch.setattr(client, "FORKS", request.param == "forking child")
    return str(request.param)


def asked(timeout: float = 20.0) -> ProbeReport:
    report = survey.survey(("fake",), Host(), Presence.USABLE, timeout=timeout)
    return report.probes["fake"]


def outcomes(probe: ProbeReport) -> dict[str, tuple[str, str]]:
    """Return the rung and the reason's code of each library, by its file's name."""
    return {
        Path(library.path).stem: (
            str(library.presence),
            library.reasons[0].code if library.reasons else "",
        )
        for library in probe.libraries
    }


@pytest.mark.usefixtures("way")
def test_each_misbehaviour_keeps_its_own_rung_and_reason(fake_probe: Callable[..., Path]) -> None:
    expected = {
        "good": ("usable", ""),
        "crashes_when_opened": ("found", "crashed"),
        "crashes_in_use": ("loadable", "crashed"),
        "segfaults": ("found", "crashed"),
        "exits": ("found", "exited"),
        "prints": ("usable", ""),
        "closes_everything": ("found", "exited"),
        "lacks_its_function": ("found", "missing-symbol"),
    }
    fake_probe(*expected)

    assert outcomes(asked()) == expected


@pytest.mark.usefixtures("way")
def test_nobody_waits_for_a_child_that_a_library_leaves_with_its_pipes(
    fake_probe: Callable[..., Path],
) -> None:
    # Wine starts explorer.exe with the first window: `doctor --timeout 120` waited two minutes for it.
    fake_probe("forks", "forks_and_crashes")

    assert outcomes(asked(timeout=30.0)) == {
        "forks": ("usable", ""),
        "forks_and_crashes": ("found", "crashed"),
    }


@pytest.mark.usefixtures("way")
def test_a_bug_in_a_probe_is_named_as_ours(fake_probe: Callable[..., Path], tmp_path: Path) -> None:
    fake_probe("good")
    module = tmp_path / "site" / "fake_probe_module.py"
    module.write_text(module.read_text().replace("opened.fake_use()", "1 / 0"))

    probe = asked()

    assert probe.libraries[0].reasons[0].code == "probe-error"
    assert probe.libraries[0].presence is Presence.LOADABLE
    assert probe.failure is not None
    assert "ZeroDivisionError" in probe.failure.traceback


@pytest.mark.usefixtures("way")
def test_what_it_printed_last_stands_in_the_reason(fake_probe: Callable[..., Path]) -> None:
    fake_probe("crashes_in_use")

    (library,) = asked().libraries

    assert "SIGABRT" in library.reasons[0].message
    assert library.reasons[0].message.endswith("it printed: no such engine")
    assert library.version == "7"


@pytest.mark.usefixtures("way")
def test_libraries_that_hang_are_stopped_and_named(fake_probe: Callable[..., Path]) -> None:
    fake_probe("good", "hangs_when_opened", "hangs_in_use", "ignores_signals")

    assert outcomes(asked(timeout=3.0)) == {
        "good": ("usable", ""),
        "hangs_when_opened": ("found", "timed-out"),
        "hangs_in_use": ("loadable", "timed-out"),
        "ignores_signals": ("found", "timed-out"),
    }


@pytest.mark.usefixtures("way")
def test_no_process_is_left(fake_probe: Callable[..., Path]) -> None:
    libraries = fake_probe("forks", "hangs_in_use", "crashes_in_use")
    children = psutil.Process().children()

    asked(timeout=0.5)

    assert soon_none_maps(libraries)
    assert psutil.Process().children() == children


def soon_none_maps(folder: Path) -> bool:
    """Wait until no process maps a file: one that was killed still has to be scheduled once."""
    deadline = time.monotonic() + 60
    while processes_that_map(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not processes_that_map(folder)


def processes_that_map(folder: Path) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if str(folder) in Path(f"/proc/{entry}/maps").read_text():
                    found.append(int(entry))
            except OSError:
                continue
    return found


def test_a_survey_in_many_threads_gives_each_its_whole_answer(
    fake_probe: Callable[..., Path],
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    fake_probe("good", "crashes_in_use")

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: outcomes(asked()), range(4)))

    assert reports == [{"good": ("usable", ""), "crashes_in_use": ("loadable", "crashed")}] * 4


def test_a_broken_find_is_a_failure_and_the_others_are_there(
    fake_probe: Callable[..., Path],
) -> None:
    folder = fake_probe()
    folder.rmdir()
    module = registry.load("mlbackends_probes", "fake")
    module.find = lambda host: 1 / 0  # type: ignore[attr-defined]

    report = survey.survey(("fake", "python"), Host(), Presence.FOUND)

    assert report.probes["fake"].failure is not None
    assert "ZeroDivisionError" in report.probes["fake"].failure.traceback
    assert report.probes["python"].failure is None


@pytest.mark.parametrize("signal_sent", ["SIGINT", "SIGKILL", "SIGTERM"])
def test_the_children_die_with_us(fake_probe: Callable[..., Path], tmp_path: Path, signal_sent: str) -> None:
    libraries = fake_probe("hangs_in_use", "leaves_a_daemon_and_hangs")
    program = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(tmp_path / "site")!r})
        from mlbackends.survey import survey
        survey(("fake",), timeout=600)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not processes_that_map(libraries) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_that_map(libraries)

    process.send_signal(getattr(signal, signal_sent))
    process.wait(60)

    assert soon_none_maps(libraries)


@pytest.mark.usefixtures("way")
def test_a_signal_without_a_name_is_told_by_its_number(fake_probe: Callable[..., Path]) -> None:
    fake_probe("dies_of_a_signal_without_a_name", "good", "interrupts")

    probe = asked()

    assert outcomes(probe) == {
        "dies_of_a_signal_without_a_name": ("found", "crashed"),
        "good": ("usable", ""),
        "interrupts": ("found", "crashed"),
    }
    assert f"signal {signal.SIGRTMIN + 3}" in probe.libraries[0].reasons[0].message


@pytest.mark.usefixtures("way")
def test_what_a_library_writes_to_our_pipes_is_no_answer(fake_probe: Callable[..., Path]) -> None:
    fake_probe("crashes_in_use", "forges")

    assert outcomes(asked()) == {
        "crashes_in_use": ("loadable", "crashed"),
        "forges": ("found", "crashed"),
    }


def test_a_library_has_no_pipe_but_its_own(fake_probe: Callable[..., Path]) -> None:
    fake_probe("hangs_when_opened", "tells_what_is_open")

    versions = [library.version for library in asked(timeout=3.0).libraries]

    assert versions == ["", "4"]  # three standard streams, and the replies


def test_our_answer_goes_into_no_file_of_the_library(
    fake_probe: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAKEN", str(tmp_path / "taken"))
    fake_probe("takes_our_descriptor")

    assert outcomes(asked()) == {"takes_our_descriptor": ("found", "exited")}
    assert (tmp_path / "taken").read_bytes() == b""


def test_a_daemon_ends_with_the_survey(fake_probe: Callable[..., Path]) -> None:
    libraries = fake_probe("leaves_a_daemon", "leaves_a_daemon_and_crashes", "good")

    probe = asked()

    assert outcomes(probe) == {
        "good": ("usable", ""),
        "leaves_a_daemon": ("usable", ""),
        "leaves_a_daemon_and_crashes": ("found", "crashed"),
    }
    assert processes_that_map(libraries) == []


def test_a_daemon_that_holds_the_pipes_delays_nothing(fake_probe: Callable[..., Path]) -> None:
    fake_probe("leaves_a_daemon_and_crashes")
    start = time.monotonic()

    asked(timeout=60.0)

    assert time.monotonic() - start < 30


def test_a_library_that_kills_its_parent_costs_the_others_nothing(
    fake_probe: Callable[..., Path],
) -> None:
    libraries = fake_probe("good", "crashes_in_use", "kills_its_parent", "lacks_its_function")

    probe = asked()

    assert outcomes(probe) == {
        "crashes_in_use": ("loadable", "crashed"),
        "good": ("usable", ""),
        "kills_its_parent": ("found", "exited"),
        "lacks_its_function": ("found", "missing-symbol"),
    }
    assert "SIGKILL" in probe.libraries[2].reasons[0].message
    assert soon_none_maps(libraries)


def test_a_process_whose_parent_was_killed_before_it_began_opens_nothing(
    fake_probe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = fake_probe("hangs_when_opened")
    library = Library("fake", str(libraries / "hangs_when_opened.so"))
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as it sees its parent's number afterwards
    one = process.Forked(Request((Job(0, "fake", library),), Presence.USABLE, 60.0), ())
    while not one.is_over():
        time.sleep(0.01)

    ((reply,), rest) = one.end()

    assert reply.reason is not None
    assert (reply.reason.code, rest) == ("exited", None)


def test_what_a_library_writes_into_its_parents_descriptors_is_no_answer(
    fake_probe: Callable[..., Path],
) -> None:
    fake_probe("crashes_in_use", "good", "writes_to_its_parent")

    found = outcomes(asked())

    # Without the right to open them it writes nothing.
    assert found.pop("writes_to_its_parent") in {("usable", ""), ("found", "exited")}
    assert found == {"crashes_in_use": ("loadable", "crashed"), "good": ("usable", "")}


def test_a_library_that_never_stops_writing_there_is_given_up(
    fake_probe: Callable[..., Path],
) -> None:
    fake_probe("floods_its_parent", "good")

    found = outcomes(asked(timeout=1.0))

    assert found["floods_its_parent"][0] == "found"
    assert found["good"] == ("usable", "")


def test_a_library_without_special_rights_opens_no_descriptor_of_its_parent(
    fake_probe: Callable[..., Path], tmp_path: Path
) -> None:
    fake_probe("counts_what_it_can_open")
    program = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(tmp_path / "site")!r})
        from mlbackends.survey import survey
        print(survey(("fake",)).probes["fake"].version)
    """)
    command = [sys.executable, "-c", program]
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root opens everything, and setpriv, which takes that from it, is not here")
        command[:0] = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.usefixtures("way")
def test_what_fails_beside_the_loader_is_not_laid_to_it(
    fake_probe: Callable[..., Path], tmp_path: Path
) -> None:
    fake_probe("good")
    module = tmp_path / "site" / "fake_probe_module.py"
    module.write_text(module.read_text().replace("    opened.fake_use()", "    open('/nonexistent/file')"))

    assert outcomes(asked()) == {"good": ("loadable", "probe-error")}


def test_one_that_stops_itself_or_goes_silent_is_stopped(fake_probe: Callable[..., Path]) -> None:
    fake_probe("stops_itself", "closes_everything_and_hangs", "good")
    before = os.times()

    found = outcomes(asked(timeout=3.0))

    assert found == {
        "closes_everything_and_hangs": ("found", "timed-out"),
        "good": ("usable", ""),
        "stops_itself": ("found", "timed-out"),
    }
    after = os.times()
    # A pipe whose other end is closed must not be asked again and again.
    assert after.children_user + after.children_system - (before.children_user + before.children_system) < 1.5


def test_many_that_hang_do_so_beside_one_another(fake_probe: Callable[..., Path]) -> None:
    libraries = fake_probe("hangs_when_opened")
    for i in range(20):
        os.link(libraries / "hangs_when_opened.so", libraries / f"another{i}.so")
    start = time.monotonic()

    asked(timeout=2.0)

    # One after another they would take 42 seconds; how near to 2 it is, the benchmark tells.
    assert time.monotonic() - start < 40


@pytest.mark.slow
def test_hundreds_of_files_do_not_stop_the_pipes(fake_probe: Callable[..., Path]) -> None:
    libraries = fake_probe("lacks_its_function")
    for i in range(700):  # their names alone are twice what a pipe holds
        (libraries / f"{'long-name-' * 20}{i}.so").write_bytes(b"no library")

    probe = asked()

    assert len(probe.libraries) == 701
    assert {library.reasons[0].code for library in probe.libraries} == {
        "dlopen-failed",
        "missing-symbol",
    }


@pytest.mark.parametrize("disposition", ["SIG_IGN", "blocked"])
def test_what_a_parent_does_to_its_signals_is_not_inherited(
    fake_probe: Callable[..., Path], tmp_path: Path, disposition: str
) -> None:
    fake_probe("good", "crashes_in_use", "hangs_in_use")
    program = textwrap.dedent(f"""
        import signal, sys; sys.path.insert(0, {str(tmp_path / "site")!r})
        if {disposition!r} == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        else:
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
                signal.signal(number, signal.SIG_IGN)
        from mlbackends.survey import survey
        for library in survey(("fake",), timeout=3.0).probes["fake"].libraries:
            print(library.presence, *(reason.code for reason in library.reasons))
    """)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout.splitlines() == ["loadable crashed", "usable", "loadable timed-out"]
    assert done.stderr == ""


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("executable", ["", "/nonexistent/python"])
def test_without_an_interpreter_to_start_the_rest_is_still_told(
    fake_probe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    fake_probe("good")
    monkeypatch.setattr(sys, "executable", executable)

    assert outcomes(asked()) == {"good": ("found", "not-asked")}


@pytest.mark.usefixtures("way")
def test_a_frozen_program_does_not_start_itself(
    fake_probe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_probe("good")
    monkeypatch.setattr(sys, "frozen", True, raising=False)

    assert outcomes(asked()) == {"good": ("found", "not-asked")}


@pytest.mark.usefixtures("way")
def test_an_import_path_of_thousands_of_folders_is_no_hindrance(
    fake_probe: Callable[..., Path],
) -> None:
    fake_probe("good")
    folders = [f"/nonexistent/{i}" for i in range(10000)]
    sys.path += folders

    try:
        found = outcomes(asked())
    finally:
        del sys.path[-len(folders) :]

    assert found == {"good": ("usable", "")}


def test_where_no_process_can_be_had_the_library_stays_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    answers, output = os.pipe()
    server = worker._Server(output)
    library = Library("fake", "/usr/lib/libfake.so")
    server.waiting.append(Request((Job(3, "fake", library),), Presence.USABLE, 1.0))
    descriptors = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refuse)

    server._start()

    reply = msgspec.json.decode(os.read(answers, 4096), type=Reply)
    assert reply.reason is not None
    assert (reply.id, reply.reason.code) == (3, "not-asked")
    assert "Resource temporarily unavailable" in reply.reason.message
    assert sorted(os.listdir("/proc/self/fd")) == descriptors


def test_few_descriptors_make_files_wait_for_one_another(
    fake_probe: Callable[..., Path], tmp_path: Path
) -> None:
    libraries = fake_probe("good")
    for i in range(8):
        os.link(libraries / "good.so", libraries / f"another{i}.so")
    program = textwrap.dedent(f"""
        import resource, sys; sys.path.insert(0, {str(tmp_path / "site")!r})
        from mlbackends.survey import survey
        resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14))
        for library in survey(("fake",)).probes["fake"].libraries:
            print(library.presence, *(reason.message for reason in library.reasons))
    """)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout.splitlines() == ["usable"] * 9


def test_many_surveys_leave_no_descriptor_and_no_zombie(fake_probe: Callable[..., Path]) -> None:
    fake_probe("good", "crashes_in_use")
    asked()
    before = sorted(os.listdir("/proc/self/fd"))
    children = psutil.Process().children()

    for _ in range(4):
        asked()

    assert sorted(os.listdir("/proc/self/fd")) == before
    assert psutil.Process().children() == children


@pytest.mark.parametrize("question", [b"", b"{}\n"], ids=["idle", "asked"])
@pytest.mark.skipif(sys.platform != "linux", reason="the child forks on Linux alone")
def test_a_child_imports_probes_until_it_is_asked(question: bytes) -> None:
    program = (
        "import os, sys; from mlbackends.isolation import worker\n"
        "reading, writing = os.pipe(); os.dup2(reading, 0)\n"
        f"os.write(writing, {question!r}) if {question!r} else None\n"
        "worker._import_probes()\n"
        "print('mlbackends_probes.cpu' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert done.stdout.split() == [b"False" if question else b"True"]


@pytest.mark.skipif(sys.platform != "linux", reason="the child forks on Linux alone")
def test_what_is_found_after_a_library_has_killed_the_child_is_opened_too(
    fake_probe: Callable[..., Path],
) -> None:
    libraries = fake_probe("good", "kills_its_parent")
    jobs = [
        Job(number, "fake", Library("fake", str(libraries / f"{name}.so"), ""))
        for number, name in enumerate(("kills_its_parent", "good"))
    ]

    def batches() -> Iterator[list[Request]]:
        yield [Request((jobs[0],), Presence.USABLE, 20.0)]
        assert child.process is not None
        child.process.wait(20)
        yield [Request((jobs[1],), Presence.USABLE, 20.0)]

    with contextlib.closing(client.Child()) as child:
        replies = {reply.id: reply.presence for reply in child.send(batches())}

    assert replies == {0: Presence.FOUND, 1: Presence.USABLE}


def test_what_is_opened_first_is_what_torch_has_inside_and_vulkan() -> None:
    inside = set()
    for name in registry.own_names("mlbackends_probes"):
        library = getattr(registry.load("mlbackends_probes", name), "LIBRARY", None)
        if getattr(library, "symbols", ()):
            inside.add(name)

    assert set(OPENED_FIRST) == {*inside, "torch", "vulkan"}

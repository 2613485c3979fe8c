"""Foreign code may do what it likes: it costs its own rung, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlbackends.model import registry
from mlbackends.model.records import Presence, ProbeReport
from mlbackends.probing import isolation, survey
from mlbackends.probing.host import Host

PROBE = """
'''Fake: a library that does what its source says.

Source: none.
'''
import ctypes, sys, os
from msgspec.structs import replace
from mlbackends.model.records import Answer, Finding, Library
from mlbackends.probing.search import libraries_named, absent

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
    "closes_everything": "#include <unistd.h>\nint fake_version(void) { for (int i = 0; i < 256; ++i) close(i); return 7; }",
    "lacks_its_function": "int something_else(void) { return 0; }",
}


@pytest.fixture
def fake_probe(tmp_path: Path) -> Iterator[Callable[..., Path]]:
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
            source = tmp_path / f"{name}.c"
            source.write_text(SOURCES[name])
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-w", "-o", libraries / f"{name}.so", source], check=True
            )
        sys.path.insert(0, str(site))
        registry.names.cache_clear()
        registry.load.cache_clear()
        registry._added.cache_clear()
        return libraries

    yield install
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path / "site")]
    sys.modules.pop("fake_probe_module", None)
    registry.names.cache_clear()
    registry.load.cache_clear()
    registry._added.cache_clear()


@pytest.fixture(params=["forking child", "one child a file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of asking: the one of Linux, and the one of systems where forking is not safe."""
    kind = isolation.Child if request.param == "forking child" else isolation.Spawner
    monkeypatch.setattr(survey, "isolation", lambda: kind)
    return str(request.param)


def asked(timeout: float = 20.0) -> ProbeReport:
    report = survey.survey(("fake",), Host(), Presence.USABLE, timeout=timeout)
    return report.probes["fake"]


def outcomes(probe: ProbeReport) -> dict[str, tuple[str, str]]:
    """The rung and the reason's code of each library, by its file's name."""
    return {
        Path(library.path).stem: (
            str(library.presence),
            library.reasons[0].code if library.reasons else "",
        )
        for library in probe.libraries
    }


@pytest.mark.usefixtures("way")
def test_each_misbehaviour_keeps_its_own_rung_and_reason(fake_probe: Callable[..., Path]) -> None:
    fake_probe(*(name for name in SOURCES if "hang" not in name and name != "ignores_signals"))

    assert outcomes(asked()) == {
        "good": ("usable", ""),
        "crashes_when_opened": ("found", "crashed"),
        "crashes_in_use": ("loadable", "crashed"),
        "segfaults": ("found", "crashed"),
        "exits": ("found", "exited"),
        "prints": ("usable", ""),
        "forks": ("usable", ""),
        "closes_everything": ("found", "exited"),
        "lacks_its_function": ("found", "missing-symbol"),
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

    assert outcomes(asked(timeout=1.0)) == {
        "good": ("usable", ""),
        "hangs_when_opened": ("found", "timed-out"),
        "hangs_in_use": ("loadable", "timed-out"),
        "ignores_signals": ("found", "timed-out"),
    }


@pytest.mark.usefixtures("way")
def test_no_process_is_left(fake_probe: Callable[..., Path]) -> None:
    libraries = fake_probe("forks", "hangs_in_use", "crashes_in_use")

    asked(timeout=0.5)

    deadline = time.monotonic() + 10
    while (left := processes_that_map(libraries)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


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
    module = registry.load("probes", "fake")
    module.find = lambda host: 1 / 0  # type: ignore[attr-defined]

    report = survey.survey(("fake", "python"), Host(), Presence.FOUND)

    assert report.probes["fake"].failure is not None
    assert "ZeroDivisionError" in report.probes["fake"].failure.traceback
    assert report.probes["python"].failure is None


def test_the_time_limit_bounds_the_whole_command(
    fake_probe: Callable[..., Path], tmp_path: Path
) -> None:
    """Several that hang do so beside one another; the margin is wide, since the machine may be busy."""
    fake_probe("hangs_when_opened", "hangs_in_use", "ignores_signals")
    start = time.monotonic()

    asked(timeout=3.0)

    assert time.monotonic() - start < 3.0 * 2


@pytest.mark.parametrize("signal_sent", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_the_children_die_with_us(
    fake_probe: Callable[..., Path], tmp_path: Path, signal_sent: signal.Signals
) -> None:
    libraries = fake_probe("hangs_in_use")
    program = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(tmp_path / "site")!r})
        from mlbackends.probing.survey import survey
        survey(("fake",), timeout=600)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not processes_that_map(libraries) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_that_map(libraries)

    process.send_signal(signal_sent)
    process.wait(30)

    while processes_that_map(libraries) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_that_map(libraries) == []

"""`mlbackends.trace` on fake libraries that are loaded into this very process."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import mlbackends
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.model.trace import MklCall, Primitive
from mlbackends.tracing.capture.preload import shim_path
from mlbackends.tracing.session import listener
from mlbackends.tracing.session.listener import NotCaptured
from mlbackends.tracing.verbose import VerboseUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import FakeLibrary

pytestmark = pytest.mark.skipif(sys.platform not in {"linux", "darwin"}, reason="needs dlopen")

ONEDNN = r"""
#include <stdio.h>
static int level;
int dnnl_set_verbose(int wanted) {
    if (wanted < 0 || wanted > 2) return 1;
    level = wanted;
    return 0;
}
void fake_run(int size) {
    const char *rest = "cpu,matmul,brg:avx512_core,undef,src_f32::blocked:ab::f0 "
                       "wei_f32::blocked:ab::f0 dst_f32::blocked:ab::f0,";
    if (level > 1)
        printf("onednn_verbose,v1,primitive,create:cache_miss,%s,,%dx64:64x64,0.25\n", rest, size);
    if (level) printf("onednn_verbose,v1,primitive,exec,%s,,%dx64:64x64,0.5\n", rest, size);
    fflush(stdout);
}
void fake_say(const char *text) { fputs(text, stdout); }
int fake_level(void) { return level; }
"""
MKL = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int mode;
static char path[4096];
int MKL_Verbose(int wanted) { return wanted < 0 || wanted > 2 ? -1 : (mode = wanted); }
#ifdef HAS_FILE
int mkl_verbose_output_file(const char *wanted) {
    if (!wanted || !*wanted) {
        fputs("MKL_VERBOSE WARNING: incorrect output filename: too long or empty\n", stderr);
        path[0] = 0;
        return 1;
    }
    strcpy(path, wanted);
    return 0;
}
#endif
void fake_run(int size) {
    char line[256];
    int length = snprintf(line, sizeof line, "MKL_VERBOSE SGEMM(N,N,%d,5,5,0x1,0x2,5,0x3,5,0x4,0x5,5) "
                          "15.88us CNR:OFF Dyn:1 FastMM:1 TID:0  NThr:2\n", size);
    if (!mode) return;
    if (!*path) {
        printf("%s", line);
        fflush(stdout);
        return;
    }
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (write(file, line, (size_t)length) >= 0) close(file);
}
int fake_level(void) { return mode; }
const char *fake_path(void) { return path; }
"""


class Loaded:
    """A fake in this process."""

    def __init__(self, path: Path) -> None:
        self.handle = _ctypes.dlopen(str(path), os.RTLD_LOCAL | os.RTLD_NOW)

    def _function(self, name: str, result: Any, *kinds: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *kinds)(_ctypes.dlsym(self.handle, name))

    def run(self, size: int = 64) -> None:
        self._function("fake_run", None, ctypes.c_int)(size)

    def say(self, text: bytes) -> None:
        self._function("fake_say", None, ctypes.c_char_p)(text)

    @property
    def level(self) -> int:
        return int(self._function("fake_level", ctypes.c_int)())

    @property
    def path(self) -> bytes:
        return bytes(self._function("fake_path", ctypes.c_char_p)())


@pytest.fixture(autouse=True, params=["with the shim", "without"])
def stamps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether lines are stamped; what runs in a process of its own has what is installed."""
    is_there = bool(shim_path())
    if request.param == "without":
        monkeypatch.setattr(listener, "shim_path", lambda: "")
        return False
    if not is_there:
        pytest.skip("this installation has no shim")
    return True


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Loaded]]:
    for name in ("MKL_VERBOSE", "ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("MKL_VERBOSE_OUTPUT_FILE", raising=False)
    all_of_them: list[Loaded] = []
    yield all_of_them
    for thread in all_of_them:
        _ctypes.dlclose(thread.handle)


@pytest.fixture
def onednn(loaded: list[Loaded], fake_library: FakeLibrary) -> Loaded:
    loaded.append(Loaded(fake_library("talking_onednn", "libdnnl.so.3", source=ONEDNN)))
    return loaded[-1]


@pytest.fixture
def mkl(loaded: list[Loaded], fake_library: FakeLibrary) -> Loaded:
    made = fake_library("talking_mkl", "libmkl_rt.so.3", source=MKL, defines=("HAS_FILE",))
    loaded.append(Loaded(made))
    return loaded[-1]


@pytest.fixture
def old_mkl(loaded: list[Loaded], fake_library: FakeLibrary) -> Loaded:
    loaded.append(Loaded(fake_library("talking_mkl", "libmkl_rt.so.1", source=MKL)))
    return loaded[-1]


def shapes(session: Any) -> list[str]:
    return [record.shape for record in session.records if record.executed]


def test_a_session_has_typed_records_whose_text_is_the_line(onednn: Loaded) -> None:
    with mlbackends.trace("onednn") as session:
        onednn.run()
    made, ran = session.records
    assert isinstance(made, Primitive) and made.event == "create" and made.cache == "cache_miss"
    assert isinstance(ran, Primitive) and ran.duration_ns == 500_000
    assert str(ran).startswith("onednn_verbose,v1,primitive,exec,cpu,matmul,brg:avx512_core")
    assert (ran.line_number, len(session), list(session)) == (2, 2, session.records)


def test_nothing_is_collected_before_and_behind(onednn: Loaded, capfd: pytest.CaptureFixture[str]) -> None:
    onednn.run(1)
    with mlbackends.trace("onednn") as session:
        onednn.run(2)
    onednn.run(3)
    assert shapes(session) == ["2x64:64x64"]
    assert (onednn.level, capfd.readouterr().out) == (0, "")


def test_level_exec_leaves_creations_out(onednn: Loaded) -> None:
    with mlbackends.trace("onednn", level="exec") as session:
        onednn.run()
    assert [record.executed for record in session.records] == [True]


def test_records_can_be_read_while_it_runs(onednn: Loaded) -> None:
    with mlbackends.trace("onednn") as session:
        assert session.records == []
        onednn.run(1)
        assert shapes(session) == ["1x64:64x64"]
        onednn.run(2)
        assert shapes(session) == ["1x64:64x64", "2x64:64x64"]
    assert shapes(session) == ["1x64:64x64", "2x64:64x64"]


def test_the_programs_own_text_goes_through_byte_for_byte(
    onednn: Loaded, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with mlbackends.trace("onednn") as session:
        os.write(1, b"no end: ")
        onednn.run()
        onednn.say(b"from C, held back\n")
        os.write(1, b"a word about onednn_verbose, and \xff\x00\r\n")
        onednn.run()
    assert len(shapes(session)) == 2
    said, from_c = b"no end: ", b"from C, held back\n"
    word = b"a word about onednn_verbose, and \xff\x00\r\n"
    assert capfdbinary.readouterr().out in {said + word + from_c, said + from_c + word}


def test_text_is_shown_while_a_session_runs(onednn: Loaded, capfd: pytest.CaptureFixture[str]) -> None:
    with mlbackends.trace("onednn"):
        os.write(1, b"a prompt without an end> ")
        said = ""
        for _ in range(200):
            said += capfd.readouterr().out
            if said:
                break
            threading.Event().wait(0.05)
    assert said == "a prompt without an end> "


def test_python_prints_in_order(onednn: Loaded, fake_library: FakeLibrary) -> None:
    program = f"""
import ctypes, mlbackends
library = ctypes.CDLL({str(fake_library("talking_onednn", "libdnnl.so.3", source=ONEDNN))!r})
print("before")
with mlbackends.trace("onednn") as session:
    print("inside")
    library.fake_run(64)
    print("inside again")
print("behind", len(session.records))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"before\ninside\ninside again\nbehind 2\n"
    assert done.stderr == b""


def test_a_process_without_standard_output_can_be_traced(fake_library: FakeLibrary) -> None:
    program = f"""
import ctypes, os, sys
os.close(1)
import mlbackends
library = ctypes.CDLL({str(fake_library("talking_onednn", "libdnnl.so.3", source=ONEDNN))!r})
for _ in range(2):
    with mlbackends.trace("onednn") as session:
        library.fake_run(64)
    print(len(session.records), file=sys.stderr)
try:
    os.fstat(1)
except OSError:
    print("closed still", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.stderr == b"2\n2\nclosed still\n"


def test_a_reader_who_has_gone_is_an_error_when_the_session_ends(fake_library: FakeLibrary) -> None:
    program = f"""
import ctypes, os, sys
import mlbackends
library = ctypes.CDLL({str(fake_library("talking_onednn", "libdnnl.so.3", source=ONEDNN))!r})
end, start = os.pipe()
os.dup2(start, 1)
os.close(start)
os.close(end)
session = mlbackends.trace("onednn")
try:
    with session:
        os.write(1, b"no process is reading this")
        library.fake_run(64)
except BrokenPipeError:
    print("broken", len(session.records), library.fake_level(), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.stderr == b"broken 2 0\n"


# ---- MKL ----------------------------------------------------------------------------------


def test_mkl_is_collected_and_standard_output_stays(
    mkl: Loaded, stamps: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    before = os.fstat(1)
    with mlbackends.trace("mkl") as session:
        assert os.path.samestat(before, os.fstat(1))
        mkl.run(7)
        assert bool(mkl.path) is not stamps
    (record,) = session.records
    assert isinstance(record, MklCall)
    assert (record.operation, record.shape) == ("SGEMM", "m7n5k5")
    assert (mkl.level, mkl.path) == (0, b"")
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_an_mkl_without_that_function_is_captured_all_the_same(
    old_mkl: Loaded, capfd: pytest.CaptureFixture[str]
) -> None:
    with mlbackends.trace("mkl") as session:
        os.write(1, b"text ")
        old_mkl.run(7)
        os.write(1, b"more\n")
    assert [record.shape for record in session] == ["m7n5k5"]
    assert capfd.readouterr().out == "text more\n"


def test_the_file_that_the_user_named_is_given_back(
    mkl: Loaded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MKL_VERBOSE_OUTPUT_FILE", str(tmp_path / "mine.log"))
    with mlbackends.trace("mkl") as session:
        mkl.run()
    assert len(session) == 1
    assert mkl.path == bytes(tmp_path / "mine.log")


def test_lines_that_go_elsewhere_for_good_are_an_error(
    old_mkl: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MKL_VERBOSE_OUTPUT_FILE", "/somewhere.log")
    with pytest.raises(NotCaptured, match=r"prints to /somewhere\.log") as raised:
        mlbackends.trace("mkl").__enter__()
    assert "MKL_VERBOSE_OUTPUT_FILE" in raised.value.hint
    assert old_mkl.level == 0


# ---- several ------------------------------------------------------------------------------


def test_both_libraries_stand_in_one_order(onednn: Loaded, mkl: Loaded) -> None:
    with mlbackends.trace("mkl", "onednn", level="exec") as session:
        mkl.run(1)
        onednn.run(2)
        mkl.run(3)
    assert shapes(session) == ["m1n5k5", "2x64:64x64", "m3n5k5"]


def test_a_session_inside_another_collects_what_the_outer_does_too(onednn: Loaded, mkl: Loaded) -> None:
    with mlbackends.trace("onednn", level="exec") as outer:
        onednn.run(1)
        with mlbackends.trace("mkl") as inner:
            onednn.run(2)
            mkl.run(3)
        onednn.run(4)
        with mlbackends.trace("onednn") as second:
            onednn.run(5)
    assert shapes(outer) == ["1x64:64x64", "2x64:64x64", "4x64:64x64", "5x64:64x64"]
    assert (shapes(inner), shapes(second)) == (["m3n5k5"], ["5x64:64x64"])
    assert (onednn.level, mkl.level, mkl.path) == (0, 0, b"")


def test_sessions_may_end_in_any_order(onednn: Loaded, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = (mlbackends.trace("onednn", level="exec") for _ in range(2))
    first.__enter__()
    onednn.run(1)
    second.__enter__()
    onednn.run(2)
    first.__exit__(None, None, None)
    onednn.run(3)
    second.__exit__(None, None, None)
    onednn.run(4)
    assert shapes(first) == ["1x64:64x64", "2x64:64x64"]
    assert shapes(second) == ["2x64:64x64", "3x64:64x64"]
    assert (onednn.level, capfd.readouterr().out) == (0, "")


def test_a_scope_around_prints_again_behind(onednn: Loaded, capfd: pytest.CaptureFixture[str]) -> None:
    with mlbackends.mkldnn.verbose(1):
        with mlbackends.trace("onednn") as session:
            onednn.run(1)
        onednn.run(2)
    assert shapes(session) == ["1x64:64x64"]
    assert capfd.readouterr().out.count("onednn_verbose") == 1
    assert onednn.level == 0


def test_a_scope_inside_is_heeded(onednn: Loaded) -> None:
    with mlbackends.trace("onednn") as session:
        with mlbackends.mkldnn.verbose(0):
            onednn.run(1)
        with mlbackends.mkldnn.verbose(1):
            onednn.run(2)
        onednn.run(3)
    assert [(record.executed, record.shape) for record in session] == [
        (True, "2x64:64x64"),
        (False, "3x64:64x64"),
        (True, "3x64:64x64"),
    ]


def test_lines_of_a_library_that_nobody_asked_for_are_the_programs(
    onednn: Loaded, old_mkl: Loaded, capfd: pytest.CaptureFixture[str]
) -> None:
    with mlbackends.mkldnn.verbose(1), mlbackends.trace("mkl") as session:
        onednn.run()
        old_mkl.run()
    assert [record.tracer for record in session] == ["mkl"]
    assert capfd.readouterr().out.startswith("onednn_verbose,v1,primitive,exec")


def test_threads_have_sessions_of_their_own(onednn: Loaded) -> None:
    def collect(size: int, results: dict[int, int]) -> None:
        for _ in range(10):
            with mlbackends.trace("onednn", level="exec") as session:
                onednn.run(size)
            results[size] = results.get(size, 0) + shapes(session).count(f"{size}x64:64x64")

    results: dict[int, int] = {}
    threads = [threading.Thread(target=collect, args=(size, results)) for size in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {1: 10, 2: 10, 3: 10}
    assert onednn.level == 0


def test_a_child_of_a_fork_is_collected_and_has_its_output(fake_library: FakeLibrary) -> None:
    program = f"""
import ctypes, os, sys
import mlbackends
library = ctypes.CDLL({str(fake_library("talking_onednn", "libdnnl.so.3", source=ONEDNN))!r})
with mlbackends.trace("onednn", level="exec") as session:
    if not os.fork():
        library.fake_run(1)
        print("from the child", flush=True)
        session.__exit__(None, None, None)
        os.write(1, b"from the child, ended\\n")
        os._exit(0)
    os.wait()
    library.fake_run(2)
print([record.shape for record in session.records])
print(len({{record.process for record in session if record.process}}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.splitlines()[-2] == b"['1x64:64x64', '2x64:64x64']"
    assert done.stdout.splitlines()[-1] == (b"2" if shim_path() else b"0")
    assert sorted(done.stdout.splitlines()[:2]) == [b"from the child", b"from the child, ended"]


# ---- who printed it, and when -------------------------------------------------------------


def test_records_tell_their_process_thread_and_start(onednn: Loaded, mkl: Loaded, stamps: bool) -> None:
    threads: list[int] = []

    def work() -> None:
        threads.append(threading.get_native_id())
        onednn.run()
        mkl.run()

    began = time.time_ns()
    with mlbackends.trace(level="exec") as session:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        work()
    ended = time.time_ns()
    assert len(session) == 4
    assert {record.process for record in session} == {os.getpid()}
    if not stamps:  # 0 is MKL's own number
        assert [record.thread for record in session] == [None, 0] * 2
        assert {record.start_ns for record in session} == {None}
        return
    assert [record.thread for record in session] == [thread for thread in threads for _ in range(2)]
    ends = [(record.start_ns or 0) + round(record.duration_ns or 0) for record in session]
    assert [began, *ends, ended] == sorted([began, *ends, ended])
    assert {record.clock for record in session} == {"epoch"}


def test_stamps_are_no_part_of_lines_and_text(
    onednn: Loaded, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    word = b"a word about onednn_verbose, in the middle\nMKL_VERBOSE too\n"
    with mlbackends.trace("onednn", level="exec") as session:
        onednn.say(b"no end ")
        onednn.run()
        onednn.say(word)
    assert [str(record)[:15] for record in session] == ["onednn_verbose,"]
    assert str(session.records[0]).endswith(",64x64:64x64,0.5")
    assert capfdbinary.readouterr().out == b"no end " + word


def test_threads_that_print_at_once_each_have_their_lines(onednn: Loaded, stamps: bool) -> None:
    threads: dict[str, int | None] = {}

    def work(size: int) -> None:
        threads[f"{size}x64:64x64"] = threading.get_native_id() if stamps else None
        for _ in range(200):
            onednn.run(size)

    with mlbackends.trace("onednn", level="exec") as session:
        running = [threading.Thread(target=work, args=(size,)) for size in (1, 2, 3)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert len(session) == 600
    assert {(record.shape, record.thread) for record in session} == set(threads.items())


def test_lines_of_another_process_are_not_taken_for_ours(
    onednn: Loaded, stamps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEDNN_VERBOSE", "1")
    line = "onednn_verbose,v1,primitive,exec,cpu,matmul,brg,undef,src_f32::blocked:ab::f0,,,8x8:8x8,1"
    with mlbackends.trace("onednn", level="exec") as session:
        onednn.run()
        subprocess.run(["echo", line], check=True)
    assert [record.process for record in session] == [os.getpid() if stamps else None, None]


def test_a_program_may_close_its_stdout_inside(fake_library: FakeLibrary) -> None:
    program = f"""
import ctypes, sys
import mlbackends
library = ctypes.CDLL({str(fake_library("talking_onednn", "libdnnl.so.3", source=ONEDNN))!r})
libc = ctypes.CDLL(None)
with mlbackends.trace("onednn", level="exec") as session:
    library.fake_run(1)
    libc.fclose(ctypes.c_void_p.in_dll(libc, "stdout"))
    library.fake_run(2)
with mlbackends.trace("onednn", level="exec") as again:
    library.fake_run(3)
print(*[record.shape for record in (*session, *again)], file=sys.stderr)
"""
    if sys.platform != "linux":
        pytest.skip("C's stdout has another name here")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stderr.split()[0] == b"1x64:64x64"


# ---- what is not there --------------------------------------------------------------------


def test_an_absent_library_is_an_error_with_a_hint_and_nothing_changes(mkl: Loaded) -> None:
    before = os.fstat(1)
    with pytest.raises(VerboseUnreachable, match="MKLDNN") as raised:
        mlbackends.trace("mkl", "onednn").__enter__()
    assert "looked at" in raised.value.hint
    assert os.path.samestat(before, os.fstat(1))
    assert (mkl.level, mkl.path) == (0, b"")


def test_without_a_name_it_takes_what_is_there(onednn: Loaded) -> None:
    with mlbackends.trace() as session, mlbackends.trace("all") as same:
        onednn.run()
    assert len(session) == len(same) == 2


def test_nothing_there_at_all_names_both(loaded: list[Loaded]) -> None:
    with pytest.raises(VerboseUnreachable, match=r"MKL into.*MKLDNN into"):
        mlbackends.trace().__enter__()


def test_an_unknown_tracer_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName) as raised:
        mlbackends.trace("onedn")
    assert raised.value.hint == "did you mean 'onednn'?"


@pytest.mark.parametrize("level", ["dispatch", "all"])
def test_a_level_that_only_variables_have_is_refused(level: str) -> None:
    with pytest.raises(BadInput, match="reads that from variables") as raised:
        mlbackends.trace("onednn", level=level)
    assert "backends trace onednn" in raised.value.hint


def test_an_unknown_level_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="level"):
        mlbackends.trace("onednn", level="executions")


def test_a_running_session_cannot_be_entered_again(onednn: Loaded) -> None:
    with mlbackends.trace("onednn") as session:
        with pytest.raises(RuntimeError, match="running"):
            session.__enter__()
        onednn.run()
    with session:
        onednn.run()
    assert len(session) == 4


def test_it_is_left_in_order_after_an_exception(onednn: Loaded) -> None:
    def fail_inside(session: Any) -> None:
        with session:
            onednn.run()
            raise KeyError

    session = mlbackends.trace("onednn")
    with pytest.raises(KeyError):
        fail_inside(session)
    assert (len(session), onednn.level) == (2, 0)


# ---- what can be done with it -------------------------------------------------------------


def test_a_session_sums_up(onednn: Loaded, mkl: Loaded) -> None:
    with mlbackends.trace() as session:
        for size in (1, 1, 2):
            onednn.run(size)
        mkl.run()
    rows = session.summary(by=("operation", "shape")).rows
    assert [(row.values, row.count) for row in rows] == [
        (("matmul", "1x64:64x64"), 2),
        (("matmul", "2x64:64x64"), 1),
        (("SGEMM", "m64n5k5"), 1),
    ]
    assert session.summary(of="creations").count == 3
    assert session.findings().codes
    assert len(session.view("roofline", top=1).points) == 1  # type: ignore[union-attr]
    assert "7 records, ended" in repr(session)


def test_it_saves_lines_and_records(onednn: Loaded, tmp_path: Path) -> None:
    with mlbackends.trace("onednn") as session:
        onednn.run()
    assert session.save(str(tmp_path / "run.log")) == 2
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert lines == [str(record) for record in session.records]
    assert session.save(str(tmp_path / "run.jsonl")) == 2
    with pytest.raises(BadInput, match="cannot be written"):
        session.save(str(tmp_path / "none" / "run.log"))


def test_a_session_without_records_is_true(onednn: Loaded) -> None:
    with mlbackends.trace("onednn") as session:
        pass
    assert session
    assert len(session) == 0

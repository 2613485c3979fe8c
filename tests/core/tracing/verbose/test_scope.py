"""Scopes on fake libraries that are loaded into this very process, and unloaded behind each test."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from mlbackends.tracing.verbose import MklVerbose, OnednnVerbose
from mlbackends.tracing.verbose.copies import loaded_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary

pytestmark = pytest.mark.skipif(sys.platform not in {"linux", "darwin"}, reason="needs dlopen")

VARIABLES = ("MKL_VERBOSE", "ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")


class Loaded:
    """A fake in this process: what it recorded, and a way to meddle with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # RTLD_LOCAL: nothing but the file's own path finds it.
        self.handle = _ctypes.dlopen(str(path), os.RTLD_LOCAL | os.RTLD_NOW)

    def _call(self, name: str, *arguments: int) -> int:
        function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * len(arguments))
        return int(function(_ctypes.dlsym(self.handle, name))(*arguments))

    @property
    def level(self) -> int:
        return self._call("fake_level")

    @property
    def sets(self) -> int:
        return self._call("fake_sets")

    def meddle(self, level: int) -> None:
        self._call("fake_set", level)


Load = Callable[..., Loaded]


@pytest.fixture
def load(fake_library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Give a function that loads a fake; none of them is left in the process in the end."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    loaded: list[Loaded] = []

    def load(name: str, soname: str, *defines: str) -> Loaded:
        loaded.append(Loaded(fake_library(name, soname, defines=defines)))
        return loaded[-1]

    yield load
    for library in loaded:
        _ctypes.dlclose(library.handle)


@pytest.fixture(params=["mkl", "mkl that can be read", "onednn", "torch"])
def pair(request: pytest.FixtureRequest, load: Load) -> tuple[type, Loaded]:
    """Give a scope's class, and a fake that it acts on."""
    if request.param == "mkl":
        return MklVerbose, load("fake_mkl", "libmkl_rt.so.3")
    if request.param == "mkl that can be read":
        return MklVerbose, load("fake_mkl", "libmkl_core.so.3", "READER")
    if request.param == "onednn":
        return OnednnVerbose, load("fake_onednn", "libdnnl.so.3", "MAJOR=3", "MINOR=12")
    return OnednnVerbose, load("fake_onednn", "libtorch_cpu.so", "TORCH")


def test_an_inner_scope_gives_back_the_level_of_the_outer(pair: tuple[type, Loaded]) -> None:
    verbose, library = pair
    with verbose(2):
        with verbose(1):
            assert library.level == 1
        assert library.level == 2
        with verbose(0):
            assert library.level == 0
        assert library.level == 2
    assert library.level == 0


def test_a_scope_gives_the_level_back_after_an_exception(pair: tuple[type, Loaded]) -> None:
    verbose, library = pair

    def fail_inside() -> None:
        with verbose(1):
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert library.level == 0


def test_one_object_can_be_entered_again_inside_itself(pair: tuple[type, Loaded]) -> None:
    verbose, library = pair
    scope = verbose(2)
    with verbose(1), scope:
        with scope:
            assert library.level == 2
        assert library.level == 2
    with scope:
        assert library.level == 2
    assert library.level == 0


def test_scopes_of_several_threads_may_end_in_any_order(pair: tuple[type, Loaded]) -> None:
    verbose, library = pair
    first, second, third = verbose(1), verbose(2), verbose(1)
    for scope in (first, second, third):
        scope.__enter__()
    second.__exit__(None, None, None)
    assert library.level == 1
    first.__exit__(None, None, None)
    assert library.level == 1
    third.__exit__(None, None, None)
    assert library.level == 0


def test_many_threads_leave_the_level_that_was_there(pair: tuple[type, Loaded]) -> None:
    verbose, library = pair
    seen: list[int] = []

    def work(level: int) -> None:
        for _ in range(5):
            with verbose(level):
                seen.append(library.level)

    threads = [threading.Thread(target=work, args=(1 + i % 2,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert library.level == 0
    assert set(seen) <= {1, 2} and len(seen) == 30


@pytest.mark.parametrize("wrong", ["1", 1.0, None, [1]])
def test_a_level_that_is_no_integer_is_a_type_error(pair: tuple[type, Loaded], wrong: object) -> None:
    verbose, library = pair
    scope = verbose(wrong)
    with pytest.raises(TypeError, match=f"got {type(wrong).__name__}"):
        scope.__enter__()
    assert library.sets == 0


@pytest.mark.parametrize("wrong", [-1, 3, 7, 1 << 80])
def test_a_level_that_does_not_exist_is_refused(pair: tuple[type, Loaded], wrong: int) -> None:
    verbose, library = pair
    with pytest.raises(AssertionError, match=f"has no level {wrong}"):
        verbose(wrong).__enter__()
    assert (library.level, library.sets) == (0, 0)


def test_the_level_is_looked_at_on_entering_as_in_torch(load: Load) -> None:
    library = load("fake_mkl", "libmkl_rt.so.3")
    scope = MklVerbose(enable=0)
    scope.enable = 1
    with scope:
        assert library.level == 1


def test_an_index_type_is_as_good_as_an_integer(load: Load) -> None:
    library = load("fake_onednn", "libdnnl.so.3")
    with OnednnVerbose(level=True):
        assert library.level == 1


def test_every_copy_is_set_and_each_gets_its_own_level_back(load: Load) -> None:
    one = load("fake_mkl", "libmkl_rt.so.3", "READER")
    other = load("fake_mkl", "libtorch_cpu.so", "READER")
    other.meddle(2)
    with MklVerbose(1):
        assert (one.level, other.level) == (1, 1)
    assert (one.level, other.level) == (0, 2)


def test_what_other_code_set_in_between_is_given_back_where_it_can_be_read(load: Load) -> None:
    library = load("fake_mkl", "libmkl_rt.so.3", "READER")
    with MklVerbose(1):
        library.meddle(2)
        with MklVerbose(1):
            assert library.level == 1
        assert library.level == 2
    assert library.level == 0


@pytest.mark.parametrize("answer", ["0", "8", "3", "(1ULL << 40)", "-4", "mkl_serv_iface_verbose_mode"])
def test_a_reader_that_returns_no_mode_is_not_believed(load: Load, answer: str) -> None:
    library = load("fake_mkl", "libmkl_rt.so.3", f"WRONG={answer}")
    with MklVerbose(1), MklVerbose(2):
        assert library.level == 2
    assert library.level == 0


@pytest.mark.parametrize("reader", [(), ("READER",)])
def test_the_level_that_the_environment_asked_of_mkl_is_given_back(
    load: Load, monkeypatch: pytest.MonkeyPatch, reader: tuple[str, ...]
) -> None:
    library = load("fake_mkl", "libmkl_rt.so.3", *reader)
    monkeypatch.setenv("MKL_VERBOSE", "1")
    with MklVerbose(0):
        assert library.level == 0
    assert library.level == 1


def test_the_level_that_the_environment_asked_of_onednn_is_given_back(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = load("fake_onednn", "libdnnl.so.3", "MAJOR=3", "MINOR=12")
    monkeypatch.setenv("ONEDNN_VERBOSE", "profile")
    with OnednnVerbose(0), OnednnVerbose(1):
        pass
    assert library.level == 2


def test_words_that_no_level_says_are_warned_of_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    library = load("fake_onednn", "libdnnl.so.3", "MAJOR=3", "MINOR=12")
    monkeypatch.setenv("DNNL_VERBOSE", "1,filter=words_that_no_level_says")
    with (
        pytest.warns(UserWarning, match="cannot be set back to DNNL_VERBOSE=1,filter=") as told,
        OnednnVerbose(2),
    ):
        pass
    assert told[0].filename == __file__
    with OnednnVerbose(2):  # a second warning would be an error here
        pass
    assert library.level == 1


def test_a_warning_that_is_an_error_leaves_everything_as_it_was(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = load("fake_onednn", "libdnnl.so.3", "MAJOR=3", "MINOR=12")
    monkeypatch.setenv("ONEDNN_VERBOSE", "dispatch,filter=an_error")
    with pytest.raises(UserWarning):
        OnednnVerbose(2).__enter__()
    assert library.sets == 0


def test_a_copy_with_fewer_levels_refuses_for_all(load: Load) -> None:
    new = load("fake_mkl", "libmkl_rt.so.2", "READER")
    old = load("fake_mkl", "libmkl_rt.so.1", "LEVELS=2", "READER")
    newer = load("fake_mkl", "libmkl_rt.so.3", "READER")
    with MklVerbose(1):
        with pytest.raises(AssertionError, match=r"libmkl_rt\.so\.1 refused level 2"):
            MklVerbose(2).__enter__()
        assert (new.level, old.level, newer.level) == (1, 1, 1)
    assert (new.level, old.level, newer.level) == (0, 0, 0)


def test_a_copy_that_takes_no_level_does_not_stand_in_the_way(load: Load) -> None:
    load("fake_onednn", "libtorch_cpu.so", "TORCH", "REFUSES")
    library = load("fake_onednn", "libmkldnn.so.1", "OLD_NAME")
    with OnednnVerbose(1):
        assert library.level == 1
    assert library.level == 0


def test_a_scope_keeps_its_library_loaded_and_lets_it_go_afterwards(
    fake_library: FakeLibrary,
) -> None:
    library = Loaded(fake_library("fake_mkl", "libmkl_unloaded.so"))
    with MklVerbose(1):
        _ctypes.dlclose(library.handle)
        assert str(library.path) in loaded_files()
    assert str(library.path) not in loaded_files()


def test_a_refused_scope_holds_no_library(fake_library: FakeLibrary) -> None:
    library = Loaded(fake_library("fake_mkl", "libmkl_refusing.so", defines=("LEVELS=2",)))
    with pytest.raises(AssertionError):
        MklVerbose(2).__enter__()
    _ctypes.dlclose(library.handle)
    assert str(library.path) not in loaded_files()


def test_a_library_that_is_loaded_inside_a_scope_is_left_alone(load: Load) -> None:
    load("fake_mkl", "libmkl_first.so")
    with MklVerbose(1):
        late = load("fake_mkl", "libmkl_late.so")
        assert late.level == 0
    assert late.sets == 0


def test_a_copy_that_an_extension_needs_is_switched_once(
    fake_library: FakeLibrary, load: Load, tmp_path: Path
) -> None:
    library = load("fake_mkl", "libmkl_needed.so")
    extension = tmp_path / "extension.so"
    source = tmp_path / "extension.c"
    source.write_text("int MKL_Verbose(int); int use(void) { return MKL_Verbose(0); }\n")
    command = ["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", str(extension), str(source)]
    where = library.path.parent
    subprocess.run([*command, str(library.path), f"-Wl,-rpath,{where}"], check=True)
    handle = _ctypes.dlopen(str(extension), os.RTLD_LOCAL | os.RTLD_NOW)
    try:
        with MklVerbose(1):
            assert (library.level, library.sets) == (1, 1)
    finally:
        _ctypes.dlclose(handle)


def test_a_removed_file_is_still_switched(fake_library: FakeLibrary, tmp_path: Path) -> None:
    built = fake_library("fake_mkl", "libmkl_rt.so.3")
    copy = tmp_path / "libmkl_removed.so"
    copy.write_bytes(built.read_bytes())
    library = Loaded(copy)
    copy.unlink()
    with MklVerbose(1):
        assert library.level == 1
    assert library.level == 0
    _ctypes.dlclose(library.handle)


def run_alone(code: str) -> str:
    """Run a few lines in an interpreter that has loaded nothing, and return what they print."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize("name", ["MklVerbose", "OnednnVerbose"])
def test_where_nothing_is_loaded_the_error_says_so_and_level_0_is_fine(name: str) -> None:
    printed = run_alone(
        f"from mlbackends.tracing.verbose import {name}\n"
        f"with {name}(0): print('silent')\n"
        f"try: {name}(1).__enter__()\n"
        "except AssertionError as error: print(error, error.hint, sep='\\n')\n"
    )
    silent, message, hint = printed.splitlines()
    assert silent == "silent"
    assert message.startswith("Failed to set MKL")
    assert hint.startswith("looked at the ")


def test_a_library_without_its_switch_is_named_with_the_variable_that_helps(
    fake_library: FakeLibrary,
) -> None:
    path = fake_library("fake_mkl", "libmklml_intel.so", defines=("NO_SWITCH",))
    printed = run_alone(
        "import ctypes\n"
        "from mlbackends.tracing.verbose import MklVerbose\n"
        f"library = ctypes.CDLL({str(path)!r})\n"
        "try: MklVerbose(1).__enter__()\n"
        "except AssertionError as error: print(error.hint)\n"
    )
    assert "libmklml_intel.so" in printed
    assert "set MKL_VERBOSE before the process starts" in printed


def test_a_fork_inside_a_scope_can_open_scopes_of_its_own(fake_library: FakeLibrary) -> None:
    path = fake_library("fake_mkl", "libmkl_rt.so.3")
    printed = run_alone(
        "import ctypes, os, threading\n"
        "from mlbackends.tracing.verbose import MklVerbose\nfrom mlbackends.tracing import verbose as scope\n"
        f"library = ctypes.CDLL({str(path)!r})\n"
        "held, over = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with scope._lock: held.set(); over.wait()\n"
        "thread = threading.Thread(target=hold); thread.start(); held.wait()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    with MklVerbose(1): print(library.fake_level(), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0); over.set(); thread.join()\n"
    )
    assert printed.split() == ["1"]


def test_importing_the_scopes_loads_no_ctypes() -> None:
    printed = run_alone(
        "import sys; before = set(sys.modules); import mlbackends.tracing.verbose\n"
        "print(sorted({'_ctypes', 'ctypes', 'subprocess'} & set(sys.modules) - before))"
    )
    assert printed.strip() == "[]"

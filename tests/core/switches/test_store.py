"""The switches' values: who gives them first, and that changes are whole, in threads and children too."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.switches import store
from mlbackends.switches.table import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VARIABLES = {name for flag in SWITCHES.values() for name in flag.variables} | {"MLBACKENDS_FLAGS"}
READABLE = [name for name, flag in SWITCHES.items() if flag.reached != "variable"]


@pytest.fixture(autouse=True)
def a_clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    store.forget()
    yield
    store.forget()


def python(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with these variables, and none of the switches' otherwise."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", program],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=True,
    )


# ---- where a value comes from ---------------------------------------------------


def test_what_nobody_set_is_the_default() -> None:
    for name, flag in SWITCHES.items():
        assert store.origin(name) == "default"
        if isinstance(flag.default, bool):
            assert store.read(name) is flag.default
    assert store.environment() == {}
    assert store.problems() == []


def test_a_later_word_beats_an_earlier_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "flags.toml"
    file.write_text("[cudnn]\nbenchmark = true\ndeterministic = true\nenabled = false\n")
    monkeypatch.setenv("MLBACKENDS_FLAGS", str(file))
    monkeypatch.setenv("MLBACKENDS_CUDNN_DETERMINISTIC", "0")
    monkeypatch.setenv("MLBACKENDS_CUDNN_ENABLED", "0")
    store.write("cudnn.enabled", True)

    names = ("cudnn.benchmark", "cudnn.deterministic", "cudnn.enabled", "cudnn.allow_tf32")
    assert [(store.read(name), store.origin(name)) for name in names] == [
        (True, "file"),
        (False, "environment"),
        (True, "set"),
        (True, "default"),
    ]


def test_variables_are_read_at_the_first_touch_and_never_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLBACKENDS_CUDNN_BENCHMARK", "1")
    assert store.read("cudnn.benchmark") is True
    monkeypatch.setenv("MLBACKENDS_CUDNN_BENCHMARK", "0")
    assert store.read("cudnn.benchmark") is True


@pytest.mark.parametrize("text", ["", "2", "true", " 1", "1" * 30_000, "\u0661", "\udcff\udcfe"])
def test_nonsense_in_a_variable_is_told_and_ignored(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLBACKENDS_CUDNN_BENCHMARK", text)

    with pytest.warns(UserWarning, match="Ignoring invalid value for boolean flag") as caught:
        assert store.read("cudnn.benchmark") is False
    assert caught[0].filename == __file__
    assert store.origin("cudnn.benchmark") == "default"
    [problem] = store.problems()
    assert "MLBACKENDS_CUDNN_BENCHMARK" in problem
    assert len(problem) < 400


def test_nonsense_where_warnings_are_errors_is_an_error_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLBACKENDS_CUDNN_BENCHMARK", "maybe")
    monkeypatch.setenv("MLBACKENDS_CUDNN_DETERMINISTIC", "1")
    with pytest.raises(UserWarning, match="maybe"):  # pytest's filter makes it an error
        store.read("cudnn.benchmark")
    assert store.read("cudnn.deterministic") is True


@pytest.mark.parametrize(
    ("variables", "name", "value"),
    [
        ({"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}, "cuda.matmul.fp32_precision", "tf32"),
        ({"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}, "float32_matmul_precision", "high"),
        ({"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "0"}, "cuda.matmul.fp32_precision", "none"),
        ({"TORCH_LINALG_PREFER_HIPSOLVER": "1"}, "cuda.preferred_linalg_library", "cusolver"),
        ({"TORCH_LINALG_PREFER_CUSOLVER": "0"}, "cuda.preferred_linalg_library", "default"),
        ({"TORCH_BLAS_PREFER_HIPBLASLT": "1"}, "cuda.preferred_blas_library", "cublaslt"),
        ({"TORCH_ROCM_FA_PREFER_CK": "1"}, "cuda.preferred_rocm_fa_library", "ck"),
        ({"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}, "cuda.cublas_workspace_size", 32 << 20),
        ({"CUBLASLT_WORKSPACE_SIZE": "1024"}, "cuda.cublaslt_workspace_size", 1 << 20),
        ({"ATEN_CPU_CAPABILITY": "default"}, "cpu.capability", "default"),
        ({"ONEDNN_VERBOSE": "dispatch,profile"}, "mkldnn.verbose_level", "dispatch,profile"),
        ({"OMP_NUM_THREADS": "4,2"}, "openmp.num_threads", "4,2"),
        ({"TORCH_DISABLE_NATIVE_JIT": "1"}, "python_native.disabled", True),
    ],
    ids=str,
)
def test_a_variable_of_torch_or_a_library_is_read(
    variables: dict[str, str], name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)

    assert store.read(name) == value
    assert store.problems() == []


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TORCH_LINALG_PREFER_CUSOLVER", "cusolver"),
        ("CUBLAS_WORKSPACE_CONFIG", "4096:8"),
        ("CUBLASLT_WORKSPACE_SIZE", "1 MiB"),
        ("ATEN_CPU_CAPABILITY", "AVX2"),
        ("MKL_NUM_THREADS", "0"),
        ("MLBACKENDS_CUDNN_DEPTHWISE_KERNEL", "cuDNN"),
        ("MLBACKENDS_CUDA_SDP_PRIORITY_ORDER", "math"),
    ],
)
def test_a_wrong_word_in_a_variable_is_told_with_what_is_valid(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)

    with pytest.warns(UserWarning, match=f"{variable}: {text}; ") as caught:
        assert len(store.problems()) == 1
    assert any(words in str(caught[0].message) for words in ("alid value", "hoose from"))


def test_a_file_that_is_not_there_is_told_and_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLBACKENDS_FLAGS", str(tmp_path / "nosuch.toml"))
    monkeypatch.setenv("MLBACKENDS_CUDNN_BENCHMARK", "1")

    with pytest.warns(UserWarning, match=r"MLBACKENDS_FLAGS names: .*No such file"):
        assert store.read("cudnn.benchmark") is True


def test_a_file_with_one_wrong_line_is_ignored_as_a_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "flags.toml"
    file.write_text("[cudnn]\nbenchmark = true\nenabeld = true\n")
    monkeypatch.setenv("MLBACKENDS_FLAGS", str(file))

    with pytest.warns(UserWarning, match=r"flags[.]toml:3: there is no switch"):
        assert store.read("cudnn.benchmark") is False
    with pytest.raises(BadInput, match=r"flags[.]toml:3"):
        store.load_file(str(file))
    assert store.read("cudnn.benchmark") is False


# ---- changes are whole ------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(READABLE), st.one_of(st.booleans(), st.none(), st.text()), min_size=1))
def test_several_are_set_or_none(values: dict[str, Any]) -> None:
    before = {name: outcome(name) for name in READABLE}
    with store.restored(*READABLE):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                store.write_all(values)
        except (RuntimeError, TypeError, ValueError):
            assert {name: outcome(name) for name in READABLE} == before
    assert {name: outcome(name) for name in READABLE} == before


def outcome(name: str) -> object:
    """Return what reading gives, or the type of what it raises, and the origin."""
    try:
        return store.read(name), store.origin(name)
    except RuntimeError:
        return RuntimeError


@pytest.mark.parametrize("action", [store.read, store.origin], ids=lambda each: each.__name__)
def test_an_unknown_name_is_refused_with_the_nearest(action: Any) -> None:
    with pytest.raises(UnknownName) as caught:
        action("cudnn.benchmrak")
    assert caught.value.hint == "did you mean 'cudnn.benchmark'?"
    assert isinstance(caught.value, LookupError)


def test_an_unknown_name_among_several_leaves_the_others() -> None:
    for write in (store.write_all, store.assume):
        with pytest.raises(UnknownName):
            write({"cudnn.benchmark": True, "cudnn.nosuch": True})
        assert store.read("cudnn.benchmark") is False
    with pytest.raises(UnknownName), store.applied({"cudnn.nosuch": 1}):
        pass
    with pytest.raises(UnknownName), store.restored("cudnn.nosuch"):
        pass


def test_a_function_restores_at_each_call() -> None:
    @store.restored("cudnn.benchmark")  # type: ignore[operator]
    def changed() -> None:
        store.write("cudnn.benchmark", True)

    for _ in range(2):
        changed()
        assert store.read("cudnn.benchmark") is False


def test_what_is_restored_is_also_where_it_came_from() -> None:
    with store.applied({"cudnn.benchmark": True, "cudnn.allow_tf32": False}):
        assert store.origin("cudnn.benchmark") == "set"
        assert store.read("cudnn.conv.fp32_precision") == "none"
    assert store.origin("cudnn.benchmark") == "default"
    assert store.read("cudnn.conv.fp32_precision") == "tf32"
    store.write("fp32_precision", "ieee")
    assert store.read("cudnn.conv.fp32_precision") == "ieee"


def test_an_older_switch_restores_every_entry_that_it_wrote() -> None:
    store.write("mkldnn.matmul.fp32_precision", "bf16")
    with pytest.raises(RuntimeError, match="mix of the legacy and new"):
        store.read("float32_matmul_precision")

    with store.restored("float32_matmul_precision"):
        store.write("float32_matmul_precision", "high")
        assert store.read("cuda.matmul.allow_tf32") is True
    assert store.read("mkldnn.matmul.fp32_precision") == "bf16"
    assert store.read("cuda.matmul.fp32_precision") == "none"


@pytest.mark.parametrize("name", [name for name, flag in SWITCHES.items() if flag.read_only])
def test_an_answer_is_not_set(name: str) -> None:
    with pytest.raises(RuntimeError, match="is read-only"):
        store.write(name, True)


@pytest.mark.parametrize("name", [name for name, flag in SWITCHES.items() if flag.reached == "variable"])
def test_what_a_library_reads_at_its_start_is_not_set_later(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"before the program starts, or use `backends run --set"):
        store.write(name, "1")


# ---- threads ------------------------------------------------------------------


def test_many_threads_never_see_half_of_a_change() -> None:
    pairs = [
        {"cudnn.benchmark": flag, "cudnn.deterministic": flag, "mkldnn.enabled": flag}
        for flag in (True, False)
    ]
    store.write_all(pairs[0])
    torn: list[object] = []
    done = threading.Event()

    def write() -> None:
        for number in range(400):
            store.write_all(pairs[number % 2])

    def look() -> None:
        while not done.is_set():
            seen = set(store.read_all(tuple(pairs[0])))
            if len(seen) > 1:
                torn.append(seen)

    writers = [threading.Thread(target=write) for _ in range(4)]
    readers = [threading.Thread(target=look) for _ in range(2)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert torn == []


def test_of_two_swaps_one_returns_what_the_other_set() -> None:
    names = ("cudnn.benchmark", "cudnn.deterministic", "mkldnn.enabled")
    store.write_all(dict.fromkeys(names, True))
    returned: list[tuple[object, ...]] = []

    def swap(value: bool) -> None:
        values = dict.fromkeys(names, value)
        returned.extend(store.swap(names, values) for _ in range(300))

    threads = [threading.Thread(target=swap, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(returned) == 1200
    assert {len(set(values)) for values in returned} == {1}


def test_a_swap_that_is_refused_sets_nothing() -> None:
    for error, values in (
        (RuntimeError, {"cudnn.enabled": False, "cudnn.benchmark": 1}),
        (UnknownName, {"cudnn.enabled": False, "cudnn.nosuch": 1}),
    ):
        with pytest.raises(error):
            store.swap(("cudnn.enabled",), values)
        assert store.read("cudnn.enabled") is True


def test_a_scope_in_one_thread_restores_what_it_found_whatever_others_did() -> None:
    store.write("cudnn.benchmark", True)
    entered, changed = threading.Event(), threading.Event()

    def other() -> None:
        entered.wait()
        store.write_all({"cudnn.benchmark": True, "mkldnn.deterministic": True})
        changed.set()

    thread = threading.Thread(target=other)
    thread.start()
    with store.applied({"cudnn.benchmark": False}):
        entered.set()
        changed.wait()
        assert store.read("cudnn.benchmark") is True  # the value is the process's
    thread.join()
    assert store.read("cudnn.benchmark") is True
    assert store.read("mkldnn.deterministic") is True  # not the scope's, so left alone


def test_the_freeze_is_lifted_in_one_thread_alone() -> None:
    store.freeze()
    seen: dict[str, bool] = {}
    with store.freeze_lifted():
        thread = threading.Thread(target=lambda: seen.update(other=store.frozen()))
        thread.start()
        thread.join()
        seen["here"] = store.frozen()
    seen["after"] = store.frozen()

    assert seen == {"other": True, "here": False, "after": True}


def test_the_freeze_is_lifted_in_one_task_alone() -> None:
    store.freeze()

    async def lifted(inside: asyncio.Event, looked: asyncio.Event) -> bool:
        with store.freeze_lifted():
            inside.set()
            await looked.wait()
            return store.frozen()

    async def beside(inside: asyncio.Event, looked: asyncio.Event) -> bool:
        await inside.wait()
        looked.set()
        return store.frozen()

    async def both() -> list[bool]:
        inside, looked = asyncio.Event(), asyncio.Event()
        return list(await asyncio.gather(lifted(inside, looked), beside(inside, looked)))

    assert asyncio.run(both()) == [False, True]


# ---- children -------------------------------------------------------------------

FORK_BESIDE_A_WRITER = """if True:
    import os, threading, time
    from mlbackends import flag_store
    flag_store.read("cudnn.benchmark")
    stop = threading.Event()
    def change():
        number = 0
        while not stop.is_set():
            number += 1
            flag = bool(number % 2)
            flag_store.write_all({"cudnn.benchmark": flag, "cudnn.deterministic": flag})
    def hold():
        with flag_store._lock:
            held.set()
            time.sleep(0.2)
    held = threading.Event()
    threads = [threading.Thread(target=change), threading.Thread(target=hold)]
    for thread in threads: thread.start()
    held.wait()
    good = 0
    for _ in range(20):
        child = os.fork()
        if not child:
            same = flag_store.read("cudnn.benchmark") == flag_store.read("cudnn.deterministic")
            flag_store.write("cudnn.benchmark", True)
            os._exit(0 if same and flag_store.read("cudnn.benchmark") else 1)
        good += os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads: thread.join()
    print(good)
    """


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_of_a_fork_beside_writers_reads_whole_values_and_may_write() -> None:
    assert python(FORK_BESIDE_A_WRITER).stdout == "20\n"


def test_a_new_process_starts_with_what_the_environment_tells() -> None:
    wanted = {
        "cudnn.benchmark": True,
        "fp32_precision": "ieee",
        "cuda.sdp_priority_order": (4, 3, 2, 1, 0),
    }
    store.write_all(wanted)
    asked = f"from mlbackends import flag_store as store; print(*map(store.read, {[*wanted]!r}))"

    assert python(asked, **store.environment()).stdout == "True ieee (4, 3, 2, 1, 0)\n"

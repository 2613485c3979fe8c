"""Calls like an earlier one: the same to the bit, and never after anything that decides has changed."""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import mlbackends
from mlbackends.base.errors import NoBackend
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.python_native import filters
from mlbackends.sdpa import call_cache, dispatch
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.request import Fields
from mlbackends.sdpa.sdp_backend import SDPBackend
from mlbackends.switches import store
from mlbackends_kernels.attention_cpu import library, prepared_calls
from mlbackends_kernels.attention_cpu.library import NotBuilt
from mlbackends_kernels.cuda.device_array import DeviceArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import FirstArguments

attend: Any = mlbackends.scaled_dot_product_attention
RANDOM = np.random.default_rng(5)
Q = RANDOM.standard_normal((1, 2, 4, 8)).astype("float32")
K = RANDOM.standard_normal((1, 2, 6, 8)).astype("float32")


def is_built() -> bool:
    try:
        return prepared_calls.native_module() is not None
    except NotBuilt:
        return False


pytestmark = pytest.mark.skipif(not is_built(), reason="the module of prepared calls was not built")


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    attend(Q, Q, Q)  # backends and switches are there
    call_cache._kept.clear()
    yield
    call_cache._kept.clear()


@pytest.fixture
def looked_at(first_arguments: FirstArguments) -> list[AttentionProblem]:
    """Return the problems that were decided anew, in a list that grows."""
    return first_arguments(dispatch, "chosen_backend")


def anew(*tensors: Any, **options: Any) -> Any:
    """Compute it as if nothing like it had ever been asked."""
    store.changed()
    return attend(*tensors, **options)


def warmed(*tensors: Any, **options: Any) -> Any:
    """Compute it twice, so that the next call like it is prepared."""
    attend(*tensors, **options)
    return attend(*tensors, **options)


def same(seen: Any, wanted: Any) -> None:
    assert type(seen) is type(wanted)
    assert (seen.dtype, seen.shape, seen.strides) == (wanted.dtype, wanted.shape, wanted.strides)
    assert seen.tobytes() == wanted.tobytes()
    assert seen.flags.writeable


def test_from_the_third_call_of_a_kind_on_nothing_is_decided(
    looked_at: list[AttentionProblem],
) -> None:
    wanted = [attend(Q, K, K) for _ in range(2)]
    assert len(looked_at) == 2

    seen = attend(Q + 0, K + 0, K + 0)

    assert len(looked_at) == 2
    same(seen, wanted[0])
    assert not np.shares_memory(seen, attend(Q, K, K))


def test_a_mask_of_float32_beside_float64_is_never_read_in_place() -> None:
    query, mask = Q.astype("float64"), np.zeros((Q.shape[-2], Q.shape[-2]), "float32")
    mask[:, 0] = -np.inf

    wanted, *others = (attend(query, query, query, mask) for _ in range(4))
    assert all(np.array_equal(wanted, each) for each in others)


def test_where_the_module_was_not_built_each_call_is_decided_anew(
    monkeypatch: pytest.MonkeyPatch, looked_at: list[AttentionProblem]
) -> None:
    wanted = attend(Q, K, K)
    monkeypatch.setattr(prepared_calls, "native_module", lambda: None)
    store.changed()

    for _ in range(4):
        same(attend(Q, K, K), wanted)

    assert len(looked_at) == 5


def test_a_python_without_a_gil_does_not_import_a_module_of_the_stable_abi(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    prepared_calls.native_module.cache_clear()
    try:
        assert prepared_calls.native_module() is None
    finally:
        monkeypatch.undo()
        prepared_calls.native_module.cache_clear()
    assert prepared_calls.native_module() is not None


@pytest.mark.parametrize("size", [1, 12, 300], ids=["at once", "in parts", "with threads"])
def test_of_every_size_a_prepared_call_gives_the_same(
    size: int, looked_at: list[AttentionProblem]
) -> None:
    query = RANDOM.standard_normal((1, 2, 4 * size, 64)).astype("float32")
    wanted = warmed(query, query, query, is_causal=True)

    same(attend(query, query, query, is_causal=True), wanted)
    assert len(looked_at) == 2


def test_keys_that_are_split_have_their_workspace_each_time(
    looked_at: list[AttentionProblem],
) -> None:
    query, key = Q[:, :, :1], RANDOM.standard_normal((1, 2, 3000, 8)).astype("float32")
    wanted = warmed(query, key, key)

    same(attend(query, key, key), wanted)
    assert len(looked_at) == 2


# ---- layouts --------------------------------------------------------------------


@st.composite
def laid_out(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> Any:
    """Return an array of a shape that lies in memory in one of many ways."""
    seed = draw(st.integers(0, 1000))
    way = draw(
        st.sampled_from(["whole", "swapped", "part", "backwards", "gaps", "shared", "apart"])
    )
    values = np.random.default_rng(seed).standard_normal(shape)
    array = values > 0 if dtype == "bool" else values.astype(dtype)
    if way == "swapped":
        return np.ascontiguousarray(array.swapaxes(-2, -3)).swapaxes(-2, -3)
    if way == "part":
        return np.concatenate([array, array], axis=-1)[..., : shape[-1]]
    if way == "backwards":
        return array[..., ::-1, :]
    if way == "gaps":
        return array.repeat(2, axis=-2)[..., ::2, :]
    if way == "shared":
        return np.broadcast_to(array[:, :1], shape)
    if way == "apart":
        room = np.zeros(array.nbytes + 1, "uint8")[1:]
        room = room.view(array.dtype) if array.itemsize == 1 else room[:].view(array.dtype)
        room[:] = array.ravel()
        return room.reshape(shape)
    return array


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_however_tensors_lie_it_is_the_same_to_the_bit(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float64", "float16"]))
    batch, heads, length, keys = (data.draw(st.integers(1, most)) for most in (2, 3, 5, 7))
    width, value_width = (data.draw(st.sampled_from([1, 3, 8])) for _ in range(2))
    shapes = (length, width), (keys, width), (keys, value_width)
    options: dict[str, Any] = {"scale": data.draw(st.sampled_from([None, 0.5, -1.0, 0.0]))}
    kind = data.draw(st.sampled_from(["none", "causal", "bool", "number"]))
    options["is_causal"] = kind == "causal"
    masked = kind in ("bool", "number")

    def tensors() -> list[Any]:
        found = [data.draw(laid_out((batch, heads, *shape), dtype)) for shape in shapes]
        if masked:
            shape = (batch, heads, length, keys)
            found.append(data.draw(laid_out(shape, "bool" if kind == "bool" else dtype)))
        return found

    warmed(*tensors(), **options)
    again = tensors()
    for _ in range(3):
        prepared = attend(*again, **options)
    same(prepared, anew(*again, **options))


def swapped(array: Any) -> Any:
    return array.astype(array.dtype.newbyteorder())


def read_only(array: Any) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


class Mine(np.ndarray):
    """A subclass of numpy's array that is none of numpy's own."""


@pytest.mark.parametrize(
    "made",
    [swapped, read_only, np.ma.masked_array, lambda array: array.view(Mine), np.asfortranarray],
    ids=["swapped", "read-only", "masked", "mine", "fortran"],
)
def test_an_array_out_of_the_ordinary_is_read_as_before(made: Callable[[Any], Any]) -> None:
    warmed(Q, K, K)
    query, key = made(Q), made(K)
    for tensors in ((query, key, key), (Q, key, K), (query, K, K)):
        for _ in range(3):
            seen = attend(*tensors)
        wanted = anew(*tensors)
        warmed(Q, K, K)
        assert type(seen) is type(wanted)
        assert np.asarray(seen).tobytes() == np.asarray(wanted).tobytes()


def test_a_matrix_is_no_array_of_the_kind(looked_at: list[AttentionProblem]) -> None:
    warmed(Q[0, 0], K[0, 0], K[0, 0])
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(Q[0, 0])

    assert np.array_equal(attend(matrix, K[0, 0], K[0, 0]), attend(Q[0, 0], K[0, 0], K[0, 0]))
    assert len(looked_at) == 3


def test_elements_across_their_own_size_are_copied_first() -> None:
    warmed(Q, K, K)
    across = np.zeros(Q.nbytes + 1, "uint8")[1:].view("float32").reshape(Q.shape)
    across[...] = Q

    same(attend(across, K, K), anew(Q, K, K))


def test_an_array_whose_shape_is_set_anew_is_another() -> None:
    flat = Q.reshape(1, 1, 8, 8).copy()
    warmed(flat, flat, flat)
    flat.resize((1, 2, 4, 8), refcheck=False)

    same(attend(flat, flat, flat), anew(Q, Q, Q))


# ---- what was decided -------------------------------------------------------------


def written() -> None:
    store.write("cudnn.benchmark", True)


def taken() -> None:
    store.assume({"cudnn.benchmark": True})


def swapped_for() -> None:
    store.swap(("cudnn.benchmark",), {"cudnn.benchmark": True})


@pytest.mark.parametrize(
    "change",
    [written, taken, swapped_for, store.forget, store.changed],
    ids=lambda change: change.__name__,
)
def test_a_switch_that_is_written_is_seen_by_the_next_call(
    change: Callable[[], None], looked_at: list[AttentionProblem]
) -> None:
    with store.restored("cudnn.benchmark"):
        warmed(Q, K, K)
        change()
        attend(Q, K, K)
        assert len(looked_at) == 3
        attend(Q, K, K)
        attend(Q, K, K)
        decided = len(looked_at)
        attend(Q, K, K)
        assert len(looked_at) == decided


@pytest.mark.parametrize(
    "scope",
    [
        lambda: store.applied({"cudnn.benchmark": True}),
        lambda: mlbackends.sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        lambda: mlbackends.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], True),
        lambda: library.lowered(library.usable_levels()[0]),
    ],
    ids=["applied", "sdpa_kernel", "priority", "lowered"],
)
def test_the_end_of_a_scope_is_seen_by_the_next_call(
    scope: Callable[[], Any], looked_at: list[AttentionProblem]
) -> None:
    with scope():
        warmed(Q, K, K)
        attend(Q, K, K)
        assert len(looked_at) == 2
    attend(Q, K, K)
    assert len(looked_at) == 3


@pytest.mark.parametrize(
    "scope",
    [
        lambda: store.restored("cudnn.benchmark"),
        lambda: store.applied({"cudnn.benchmark": True}),
        lambda: mlbackends.sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        lambda: mlbackends.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], True),
    ],
    ids=["restored", "applied", "sdpa_kernel", "priority"],
)
def test_in_a_scope_that_is_entered_for_each_call_what_was_decided_there_holds_again(
    scope: Callable[[], Any], looked_at: list[AttentionProblem]
) -> None:
    for _ in range(5):
        with scope():
            seen = attend(Q, K, K)
    assert len(looked_at) == 2
    with scope():
        same(seen, anew(Q, K, K))


def test_what_is_prepared_while_a_switch_is_off_and_on_again_is_not_kept() -> None:
    with store.restored("cuda.flash_sdp"):
        kind = call_cache.kind_of_call(Q, K, K, None, None, (0.0, False, None, False, False))
        assert kind is not None

        def prepare() -> Callable[..., Any]:
            store.write("cuda.flash_sdp", False)
            store.write("cuda.flash_sdp", True)
            return lambda *_: "decided by other switches"

        store.write("cuda.flash_sdp", True)
        kind = (store.state, *kind[1:])
        for _ in range(3):
            call_cache.keep(kind, prepare)
        assert store.state is kind[0]
        assert call_cache._kept[kind] == ()


def test_a_file_of_switches_is_seen_by_the_next_call(
    tmp_path: Path, looked_at: list[AttentionProblem]
) -> None:
    file = tmp_path / "flags.toml"
    file.write_text("[cudnn]\nbenchmark = true\n")
    with store.restored("cudnn.benchmark"):
        warmed(Q, K, K)
        store.load_file(str(file))
        attend(Q, K, K)
    assert len(looked_at) == 3


def test_what_is_switched_off_does_not_run_prepared_either() -> None:
    wanted = warmed(Q, K, K)
    with mlbackends.sdpa_kernel([]), pytest.raises(NoBackend):
        attend(Q, K, K)
    same(attend(Q, K, K), wanted)


def test_another_order_has_another_backend_compute_it(looked_at: list[AttentionProblem]) -> None:
    with mlbackends.sdpa_kernel([SDPBackend.MATH], set_priority=True):
        warmed(Q, K, K)
        attend(Q, K, K)
    assert len(looked_at) == 3  # the formula prepares nothing


def test_another_instruction_set_is_used_at_once() -> None:
    wide = RANDOM.standard_normal((1, 1, 3, 67)).astype("float32")
    by_level = {}
    for name in library.usable_levels():
        with library.lowered(name):
            by_level[name] = warmed(wide, wide, wide)
    for name in library.usable_levels():
        warmed(wide, wide, wide)
        with library.lowered(name):
            same(attend(wide, wide, wide), by_level[name])


def test_a_backend_that_is_added_is_asked(looked_at: list[AttentionProblem]) -> None:
    warmed(Q, K, K)
    dispatch.backends.cache_clear()
    dispatch.backends()
    attend(Q, K, K)
    assert len(looked_at) == 3


class First(AttentionBackend):
    """A backend of a language that comes before all others of its kind."""

    name, answers_to, dsl = "first", SDPBackend.FLASH_ATTENTION, "triton"


def test_what_python_native_keeps_out_may_come_back_so_nothing_is_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = TensorSpec((1, 1, 4, 8), "float32")
    problem = AttentionProblem(query=spec, key=spec, value=spec)
    everyone = (First(), *dispatch.backends())
    monkeypatch.setitem(dispatch._PLACES, "first", -1)
    monkeypatch.setattr(dispatch, "backends", lambda: everyone)

    found = dispatch.lasting_choice(problem)
    assert found and found.name == "first"
    with filters.disabled(filters.DSL, ["triton"]):
        assert dispatch.chosen_backend(problem).name == "flash_cpu"
        assert dispatch.lasting_choice(problem) is None


def test_what_cannot_do_a_problem_or_is_switched_off_may_stand_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = TensorSpec((1, 1, 4, 8), "float32")
    problem = AttentionProblem(query=spec, key=spec, value=spec, logsumexp=True)
    everyone = (First(), *dispatch.backends())
    monkeypatch.setitem(dispatch._PLACES, "first", -1)
    monkeypatch.setattr(dispatch, "backends", lambda: everyone)

    assert First().unsupported_reasons(problem)
    found = dispatch.lasting_choice(problem)
    assert found and found.name == "flash_cpu"
    with mlbackends.sdpa_kernel(SDPBackend.MATH):
        found = dispatch.lasting_choice(problem)
    assert found and found.name == "math"


def test_what_takes_other_lengths_may_not_stand_before(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, longer = (TensorSpec((1, 1, length, 8), "float32") for length in (4, 6))
    problem = AttentionProblem(
        query=spec, key=longer, value=longer, is_causal=True, lower_right=True
    )
    everyone = (First(), *dispatch.backends())
    monkeypatch.setitem(dispatch._PLACES, "first", -1)
    monkeypatch.setattr(dispatch, "backends", lambda: everyone)

    assert First().unsupported_reasons(problem)
    assert not First().unsupported_reasons(replace(problem, key=spec, value=spec))
    assert dispatch.lasting_choice(problem) is None


@pytest.mark.parametrize(
    "asked",
    {
        each.code + each.sentence: each
        for backend in dispatch.backends()
        for each in backend.every_constraint()
        if not each.sizes
    }.values(),
    ids=lambda each: str(each.code),
)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_says_that_it_looks_at_no_sizes_says_the_same_of_all(
    asked: Any, data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from(["float32", "float16", "int8"]))
    options: dict[str, Any] = {
        "dropout": data.draw(st.sampled_from([0.0, 0.5])),
        "logsumexp": data.draw(st.booleans()),
        "inner_dtype": data.draw(st.sampled_from(["", "float64"])),
    }
    gradient = data.draw(st.booleans())

    def problem() -> AttentionProblem:
        rank = data.draw(st.integers(2, 4))
        heads, length, keys, width, value_width = (data.draw(st.integers(1, 9)) for _ in range(5))
        shapes = [(length, width), (keys, width), (keys, value_width)]
        before = (2, heads)[: rank - 2]
        specs = [
            TensorSpec((*before, *shape), dtype, (3,) * rank, requires_grad=gradient)
            for shape in shapes
        ]
        return AttentionProblem(query=specs[0], key=specs[1], value=specs[2], **options)

    assert asked.test(problem()) == asked.test(problem())


# ---- arguments --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"is_causal": 1}, TypeError),
        ({"enable_gqa": 0}, TypeError),
        ({"dropout_p": "0"}, TypeError),
        ({"dropout_p": 1.5}, RuntimeError),
        ({"scale": "1"}, TypeError),
        ({"attn_mask": "mask"}, TypeError),
        ({"attn_mask": np.ones((4, 6), "int64")}, RuntimeError),
        ({"return_logsumexp": 0}, TypeError),
        ({"seed": 1.5}, TypeError),
    ],
    ids=lambda each: str(each)[:30],
)
def test_misuse_is_refused_after_right_calls_as_before(
    wrong: dict[str, Any], error: type[Exception]
) -> None:
    warmed(Q, K, K)
    warmed(Q, K, K, np.ones((4, 6), bool))
    with pytest.raises(error):
        attend(Q, K, K, **wrong)


def test_tensors_of_other_types_or_shapes_are_refused_as_before() -> None:
    warmed(Q, K, K)
    with pytest.raises(RuntimeError, match="same dtype"):
        attend(Q, K.astype("float64"), K)
    with pytest.raises(RuntimeError):
        attend(Q, K, K[:, :, :5])
    with pytest.raises(TypeError):
        attend(Q, K.tolist(), K)


def test_options_that_are_equal_but_not_the_same_mean_their_own() -> None:
    warmed(Q, K, K, scale=1.0)
    same(attend(Q, K, K, scale=True), anew(Q, K, K, scale=1.0))
    warmed(Q, K, K)
    dropped = attend(Q, K, K, dropout_p=0.5, seed=3)
    assert not np.array_equal(dropped, attend(Q, K, K))
    out, logsumexp = attend(Q, K, K, return_logsumexp=True)
    assert np.allclose(out, attend(Q, K, K), atol=1e-6) and logsumexp.shape == Q.shape[:-1]


def test_a_mask_and_none_a_causal_bias_and_a_flag_are_told_apart() -> None:
    mask = np.tril(np.ones((4, 6), bool))
    causal = anew(Q, K, K, is_causal=True)
    open_ = anew(Q, K, K)
    for _ in range(3):
        same(attend(Q, K, K, mask), anew(Q, K, K, mask))
        warmed(Q, K, K, mask)
        warmed(Q, K, K)
        same(attend(Q, K, K), open_)
        same(attend(Q, K, K, is_causal=True), causal)
        same(attend(Q, K, K, mlbackends.causal_upper_left(4, 6)), causal)


# ---- threads, processes, memory ------------------------------------------------------


def test_many_threads_use_one_prepared_call_at_once() -> None:
    inputs = [RANDOM.standard_normal((1, 2, 4, 8)).astype("float32") for _ in range(8)]
    wanted = [anew(each, each, each) for each in inputs]
    warmed(inputs[0], inputs[0], inputs[0])
    start = threading.Barrier(8)

    def work(number: int) -> bool:
        start.wait()
        each = inputs[number]
        return all(np.array_equal(attend(each, each, each), wanted[number]) for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_switches_that_change_in_another_thread_leave_no_prepared_call_of_before() -> None:
    stop = threading.Event()

    def flip() -> None:
        while not stop.is_set():
            store.write("cuda.flash_sdp", False)
            store.write("cuda.flash_sdp", True)

    with store.restored("cuda.flash_sdp"):
        thread = threading.Thread(target=flip)
        thread.start()
        try:
            for _ in range(50):
                attend(Q, K, K)
        finally:
            stop.set()
            thread.join()
        store.write("cuda.flash_sdp", False)
        store.write("cuda.math_sdp", False)
        try:
            with pytest.raises(NoBackend):
                attend(Q, K, K)
        finally:
            store.write("cuda.math_sdp", True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_computes_prepared_calls_too() -> None:
    wanted = warmed(Q, K, K)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(attend(Q, K, K), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_result_belongs_to_its_caller_alone() -> None:
    warmed(Q, K, K)
    nothing = sys.getrefcount(None)
    for _ in range(200):
        attend(Q, K, K)
    assert sys.getrefcount(None) > nothing - 100
    assert sys.getrefcount(attend(Q, K, K)) == sys.getrefcount(np.empty(Q.shape))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_cache, "_MOST_KINDS", 4)
    for width in range(1, 9):
        warmed(Q[..., :width], K[..., :width], K)
        assert len(call_cache._kept) <= 4


def test_no_more_than_a_few_forms_of_a_kind_are_prepared() -> None:
    for width in range(1, 15):
        value = np.ones((1, 2, 6, width), "float32")
        warmed(Q, K, value)
    assert {len(found) for found in call_cache._kept.values()} == {call_cache._MOST_FORMS}


def test_calls_of_ever_other_lengths_take_no_more_memory() -> None:
    room = RANDOM.standard_normal((1, 2, 3000, 8)).astype("float32")

    def pass_over(first: int) -> None:
        for keys in range(first, first + 1400):
            attend(Q, room[:, :, :keys], room[:, :, :keys])

    pass_over(1)
    kept = len(call_cache._kept)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        pass_over(1500)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(call_cache._kept) == kept
    assert grown < 20_000


# ---- lengths ----------------------------------------------------------------------


def joined(cache: Any, keys: int) -> Any:
    """Return what a cache that is made anew each time is: as long as it is full."""
    return np.ascontiguousarray(cache[:, :, :keys])


def seen_part(cache: Any, keys: int) -> Any:
    """Return the part of a larger cache that is filled, whose strides stay the same."""
    return cache[:, :, :keys]


def rows_first(cache: Any, keys: int) -> Any:
    """Return a cache of (B, S, H, E), looked at as (B, H, S, E)."""
    return np.ascontiguousarray(cache.swapaxes(1, 2))[:, :keys].swapaxes(1, 2)


@pytest.mark.parametrize("cached", [joined, seen_part, rows_first])
@pytest.mark.parametrize("heads", [2, 4], ids=["alike", "grouped"])
def test_a_cache_that_grows_is_looked_at_twice(
    cached: Callable[[Any, int], Any], heads: int, looked_at: list[AttentionProblem]
) -> None:
    # So long that from some step on the keys are split and need a workspace.
    cache = RANDOM.standard_normal((2, 2, 2, 1100, 8)).astype("float32")
    query = RANDOM.standard_normal((2, heads, 1, 8)).astype("float32")
    options = {"enable_gqa": heads > 2}
    steps = [*range(1, 8), 40, 1023, 1024, 1100]
    found = [attend(query, *(cached(each, keys) for each in cache), **options) for keys in steps]

    assert len(looked_at) == 2
    for keys, seen in zip(steps, found, strict=True):
        same(seen, anew(query, *(cached(each, keys) for each in cache), **options))


def test_a_switch_that_changes_while_a_cache_grows_is_obeyed_from_the_next_step_on() -> None:
    def step(keys: int) -> Any:
        return attend(Q[:, :, :1], K[:, :, :keys], K[:, :, :keys])

    before = [step(keys) for keys in range(1, 4)]
    with mlbackends.sdpa_kernel([]), pytest.raises(NoBackend):
        step(4)
    with mlbackends.sdpa_kernel(SDPBackend.MATH):
        assert np.allclose(step(3), before[-1], atol=1e-6)
    for keys in range(1, 4):
        same(step(keys), before[keys - 1])


def test_caches_that_grow_in_several_threads_share_a_prepared_call() -> None:
    caches = RANDOM.standard_normal((6, 1, 2, 60, 8)).astype("float32")
    wanted = [[anew(Q[:, :, :1], *[c[:, :, :n]] * 2) for n in range(1, 60)] for c in caches]
    warmed(Q[:, :, :1], K, K)
    start = threading.Barrier(6)

    def work(number: int) -> bool:
        start.wait()
        parts = [caches[number][:, :, :keys] for keys in range(1, 60)]
        found = [attend(Q[:, :, :1], part, part) for part in parts]
        return all(map(np.array_equal, found, wanted[number]))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_the_corner_of_a_causal_mask_moves_with_the_lengths() -> None:
    for queries, keys in [(4, 6), (4, 6), (4, 6), (2, 6), (4, 4), (1, 5), (4, 2)]:
        tensors = Q[:, :, :queries], K[:, :, :keys], K[:, :, :keys]
        same(attend(*tensors, is_causal=True), anew(*tensors, is_causal=True))


@pytest.mark.parametrize("made", [mlbackends.causal_upper_left, mlbackends.causal_lower_right])
def test_a_causal_bias_of_any_lengths_is_prepared_too(
    made: Callable[..., Any], looked_at: list[AttentionProblem]
) -> None:
    sizes = [(4, 6), (4, 6), (2, 6), (1, 5), (4, 4), (4, 2)]
    found = [attend(Q[:, :, :a], K[:, :, :b], K[:, :, :b], made(a, b)) for a, b in sizes]
    assert len(looked_at) == 2

    for (a, b), seen in zip(sizes, found, strict=True):
        same(seen, anew(Q[:, :, :a], K[:, :, :b], K[:, :, :b], made(a, b)))
    for _ in range(3):
        attend(Q, K, K, made(4, 6))
    with pytest.raises(RuntimeError, match="does not fit"):
        attend(Q, K, K, made(4, 5))
    with pytest.raises(ValueError, match="causal=True"):
        attend(Q, K, K, made(4, 6), is_causal=True)
    with pytest.raises((RuntimeError, IndexError)):
        attend(Q[0, 0, 0], K, K, made(4, 6))


BAD = [
    ("a longer value", (Q, K, Q)),
    ("another width", (Q, K[..., :5], K)),
    ("other batches", (np.concatenate([Q] * 2), np.concatenate([K] * 3), K)),
    ("other heads", (Q, np.concatenate([K, K[:, :1]], 1), np.concatenate([K, K[:, :1]], 1))),
    ("a mask of other keys", (Q, K, K, np.ones((4, 5), bool))),
    ("a mask of other rows", (Q, K, K, np.ones((3, 6), bool))),
    ("a mask of more batches", (Q, K, K, np.ones((2, 1, 4, 6), bool))),
    ("a mask of more dimensions", (Q[0], K[0], K[0], np.ones((1, 1, 4, 6), bool))),
    ("a mask of one dimension", (Q, K, K, np.ones(6, bool))),
    ("one dimension", (Q[0, 0, 0], K[0, 0], K[0, 0])),
    ("no dimension", (np.ones((), "float32"), K, K)),
]


@pytest.mark.parametrize("tensors", [each[1] for each in BAD], ids=[each[0] for each in BAD])
def test_what_does_not_go_together_is_refused_as_before(tensors: tuple[Any, ...]) -> None:
    def refusal() -> tuple[type, str]:
        with pytest.raises((RuntimeError, IndexError)) as caught:
            attend(*tensors)
        return caught.type, str(caught.value)

    store.changed()
    wanted = refusal()
    warmed(Q, K, K)
    warmed(Q, K, K, np.ones((4, 6), bool))
    warmed(Q[0], K[0], K[0])
    warmed(Q[0], K[0], K[0], np.ones((4, 6), bool))
    assert refusal() == wanted


def test_groups_that_do_not_divide_are_refused_as_before() -> None:
    query, key = (np.ones((1, heads, 4, 8), "float32") for heads in (6, 3))
    warmed(query, key, key, enable_gqa=True)
    with pytest.raises(RuntimeError, match="must divide"):
        attend(query, np.ones((1, 4, 4, 8), "float32"), key, enable_gqa=True)
    with pytest.raises(RuntimeError, match="go together"):
        attend(query, key, key)
    with pytest.raises(IndexError):
        attend(query[0, 0], key[0, 0], key[0, 0], enable_gqa=True)


def test_what_is_empty_gives_zeros_or_nothing_as_before() -> None:
    warmed(Q, K, K)
    flat = Q[..., :0], K[..., :0], K  # which weighs all keys alike
    wanted = anew(*flat)
    for _ in range(3):
        same(attend(*flat), wanted)
    none = K[:, :, :0]
    same(attend(Q, none, none), np.zeros_like(Q))
    assert attend(Q[:, :, :0], K, K).shape == (1, 2, 0, 8)
    assert attend(Q[:0], K[:0], K[:0]).shape == (0, 2, 4, 8)


def test_batches_and_heads_that_are_broadcast_are_computed_as_before() -> None:
    queries, keys = np.concatenate([Q, Q]), np.concatenate([K, K])
    for tensors in [(queries, K, K), (Q, keys, keys), (Q, K[:, :1], K), (Q[:, :1], K, K)] * 3:
        same(attend(*tensors), anew(*tensors))
        warmed(*tensors)
        same(attend(*tensors), anew(*tensors))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_of_any_two_calls_the_second_is_the_same_as_if_it_were_alone(data: st.DataObject) -> None:
    """Whatever the first one had prepared: ranks, lengths, groups and masks of the second are its own."""
    options: dict[str, Any] = {
        "enable_gqa": data.draw(st.booleans()),
        "return_logsumexp": data.draw(st.booleans()),
        "dropout_p": data.draw(st.sampled_from([0.0, 0.0, 0.5])),
        "seed": 7,
    }
    masked = data.draw(st.booleans())
    width = data.draw(st.sampled_from([8, 8, 3, 0]))

    def tensors() -> list[Any]:
        size = st.sampled_from([1, 1, 2, 3, 4])
        batch, heads, length, keys = (data.draw(size) for _ in range(4))
        rank = data.draw(st.integers(2, 4))

        def one(*shape: int) -> Any:
            left = data.draw(st.integers(max(rank - 1, 2), rank))
            before = tuple(data.draw(st.sampled_from([each, 1])) for each in (batch, heads))
            whole = (*before, *shape)[4 - left :]
            dtype = "bool" if len(shape) == 2 and shape[1] == keys and masked else "float32"
            return data.draw(laid_out(whole, dtype)) if left == 4 else np.ones(whole, "float32")

        found = [
            one(length, width),
            one(keys, width),
            one(keys, data.draw(st.sampled_from([8, 5]))),
        ]
        if masked:
            shape = tuple(data.draw(st.sampled_from([1, each])) for each in (length, keys))
            found.append(RANDOM.standard_normal(shape) > 0)
        return found

    def outcome(call: Callable[..., Any], *given: Any) -> tuple[Any, ...]:
        try:
            found = call(*given, **options)
        except (RuntimeError, IndexError) as error:
            return type(error), str(error)
        results = found if isinstance(found, tuple) else (found,)
        return tuple(fact for each in results for fact in (each.strides, each.tobytes()))

    first, second = tensors(), tensors()
    for _ in range(3):
        outcome(attend, *first)
    prepared = outcome(attend, *second)
    assert prepared == outcome(anew, *second)


# ---- logarithms and dropout ---------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 8), (2, 4, 8), (1, 2, 4, 8)], ids=len)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_with_the_logarithms_too_nothing_is_decided_from_the_third_call_on(
    shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = RANDOM.standard_normal(shape).astype(dtype)
    wanted = [attend(query, query, query, return_logsumexp=True) for _ in range(2)][1]
    monkeypatch.setattr(dispatch, "chosen_backend", None)

    seen = attend(query, query, query, return_logsumexp=True)
    for one, other in zip(seen, wanted, strict=True):
        same(one, other)


def test_of_large_problems_the_logarithms_are_the_same() -> None:
    large = RANDOM.standard_normal((1, 2, 300, 64)).astype("float32")
    wanted = anew(large, large, large, return_logsumexp=True)
    warmed(large, large, large, return_logsumexp=True)
    for one, other in zip(attend(large, large, large, return_logsumexp=True), wanted, strict=True):
        same(one, other)


def test_a_seed_says_what_is_dropped_in_a_prepared_call_too(
    looked_at: list[AttentionProblem],
) -> None:
    warmed(Q, K, K, dropout_p=0.5)
    found = [attend(Q, K, K, dropout_p=0.5, seed=seed) for seed in (3, -1, 1 << 70, 0)]
    assert len(looked_at) == 2

    for seed, seen in zip((3, -1, 1 << 70, 0), found, strict=True):
        same(seen, anew(Q, K, K, dropout_p=0.5, seed=seed))
    with pytest.raises(TypeError):
        attend(Q, K, K, dropout_p=0.5, seed=True)


def test_without_a_seed_each_call_draws_once_from_numpys_generator(
    looked_at: list[AttentionProblem],
) -> None:
    state = np.random.get_state()  # noqa: NPY002  what numpy.random.seed seeds
    try:
        np.random.seed(4)  # noqa: NPY002
        wanted = [anew(Q, K, K, dropout_p=0.5) for _ in range(4)]
        warmed(Q, K, K, dropout_p=0.5)
        decided = len(looked_at)
        np.random.seed(4)  # noqa: NPY002
        for each in wanted:
            same(attend(Q, K, K, dropout_p=0.5), each)
        assert len(looked_at) == decided
    finally:
        np.random.set_state(state)  # noqa: NPY002


def test_everything_dropped_draws_nothing() -> None:
    warmed(Q, K, K, dropout_p=1.0)
    state = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    assert not attend(Q, K, K, dropout_p=1.0).any()
    assert np.array_equal(np.random.get_state()[1], state)  # type: ignore[index]  # noqa: NPY002


# ---- what torch's function has no argument for ----------------------------------------


def placed(*shape: int, dtype: str = "float16", device: int = 0) -> Any:
    """Return an array that says that it lies on a CUDA device."""
    return DeviceArray(16, shape, None, dtype, device, None)


def kind_with(**fields: Any) -> Any:
    tensors = placed(1, 2, 4, 8), placed(1, 2, 6, 8), placed(1, 2, 6, 8)
    return call_cache.kind_of_call(
        *tensors, None, None, (0.0, False, None, False, False), Fields(**fields)
    )


def test_calls_with_other_fields_are_of_another_kind() -> None:
    different: list[dict[str, Any]] = [
        {"window": (1, 2)},
        {"window": (2, 1)},
        {"lower_right": True},
        {"softcap": 2.0},
        {"softcap": 3.0},
        {"sinks": placed(2)},
        {"sinks": placed(2, dtype="float32")},
        {"sinks": placed(2, device=1)},
        {"sinks": placed(4).viewed((2,), (2,))},
        {"query_lengths": (1, 3), "key_lengths": (2, 4)},
        {"query_lengths": (2, 2), "key_lengths": (2, 4)},
        {"query_lengths": (2, 2), "key_lengths": (3, 3)},
        {"key_lengths": (2, 2)},
        {"page_table": placed(1, 3, dtype="int32")},
        {"page_table": placed(1, 4, dtype="int32")},
    ]
    kinds = [kind_with(**fields) for fields in different]
    assert None not in kinds and len(set(kinds)) == len(kinds)
    again = [
        kind_with(**{**fields, "sinks": each.viewed(each.shape, each.strides, 1)})
        if (each := fields.get("sinks")) is not None
        else kind_with(**fields)
        for fields in different
    ]
    assert again == kinds
    assert kind_with(key_lengths=[2, 2]) == kind_with(key_lengths=(2, 2))


@pytest.mark.parametrize(
    "fields",
    [
        {"window": (True, 2)},
        {"window": np.array([1, 2])},
        {"lower_right": 1},
        {"softcap": np.float64(2)},
        {"sinks": np.ones(2, "float16")},
        {"key_lengths": placed(2, dtype="int32")},
        {"query_lengths": (2.0, 2)},
        {"page_table": np.zeros((1, 3), "int32")},
    ],
    ids=str,
)
def test_what_has_to_be_read_or_refused_is_looked_at_each_time(fields: dict[str, Any]) -> None:
    assert kind_with(**fields) is None


def test_on_the_host_such_calls_are_looked_at_each_time(looked_at: list[AttentionProblem]) -> None:
    for _ in range(4):
        attend(Q, K, K, window=(1, 1))
    assert len(looked_at) == 4

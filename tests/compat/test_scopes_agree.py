"""Scopes, deleting and reading of switches beside torch: nested, decorating, interrupted, in threads."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from builds import without_cuda

import mlbackends
from mlbackends.switches import store
from mlbackends.switches.table import NOT_IN_FLAGS, SWITCHES

if TYPE_CHECKING:
    from collections.abc import Iterator

torch = pytest.importorskip("torch")
pytest.importorskip("torch.backends.xnnpack")  # which torch does not import by itself
pytestmark = pytest.mark.torch

SIDES = [
    pytest.param(lambda: torch.backends, id="torch"),
    pytest.param(lambda: mlbackends, id="mlbackends"),
]
MODULES = sorted({flag.module for flag in SWITCHES.values() if flag.inside_flags is not NOT_IN_FLAGS})


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> Iterator[Any]:
    store.forget()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield request.param()
    store.forget()


def state(side: Any) -> list[object]:
    modules = side.cudnn, side.mkldnn, side.miopen, side.opt_einsum
    names = ("enabled", "benchmark", "deterministic", "allow_tf32", "fp32_precision", "immediate")
    return [getattr(module, name, None) for module in modules for name in (*names, "strategy")]


@pytest.mark.parametrize("name", MODULES)
def test_a_scope_is_a_context_manager_and_a_decorator(side: Any, name: str) -> None:
    module = getattr(side, name) if name else side
    before = state(side)

    def say() -> list[object]:
        """Say."""
        return state(side)

    inside = module.flags()(say)

    with module.flags() as given:
        assert given is None
        seen = state(side)
    assert state(side) == before
    assert inside() == seen
    assert inside() == seen  # a decorator may be used again, a scope may not
    assert (inside.__name__, inside.__doc__) == ("say", "Say.")
    assert state(side) == before


def test_a_scope_is_entered_once(side: Any) -> None:
    scope = side.cudnn.flags()
    with scope:
        pass
    with pytest.raises((AttributeError, RuntimeError)), scope:
        pass


def test_what_the_body_raises_passes_and_the_state_is_restored(side: Any) -> None:
    before = state(side)

    def inside() -> None:
        with side.cudnn.flags(enabled=True, benchmark=True, deterministic=True):
            assert side.cudnn.deterministic is True
            raise KeyError

    with pytest.raises(KeyError):
        inside()
    assert state(side) == before


def test_nested_scopes_restore_what_they_found(side: Any) -> None:
    cudnn = side.cudnn
    seen: list[bool] = []
    with cudnn.flags(enabled=True, benchmark=True):
        with cudnn.flags(enabled=True, benchmark=False):
            seen.append(cudnn.benchmark)
            cudnn.benchmark = True
            with cudnn.flags(enabled=True):
                seen.append(cudnn.benchmark)
            seen.append(cudnn.benchmark)
        seen.append(cudnn.benchmark)
    seen.append(cudnn.benchmark)
    assert seen == [False, False, True, True, False]


def test_what_the_body_assigns_does_not_outlive_the_scope(side: Any) -> None:
    with side.mkldnn.flags(enabled=True):
        side.mkldnn.deterministic = True
        side.mkldnn.enabled = False
    assert (side.mkldnn.deterministic, side.mkldnn.enabled) == (False, True)


def test_a_generic_precision_reaches_every_library_for_the_block(side: Any) -> None:
    with side.flags(fp32_precision="ieee"):
        assert side.cudnn.fp32_precision == "ieee"
        assert side.cuda.matmul.fp32_precision == "ieee"
        assert side.mkldnn.rnn.fp32_precision == "ieee"
    assert side.cudnn.fp32_precision == "none"
    assert side.mkldnn.rnn.fp32_precision == "none"


@pytest.mark.parametrize("name", ["nosuch", "Enabled", "benchmark_limt"])
def test_an_unknown_keyword_is_a_type_error(side: Any, name: str) -> None:
    for function in (side.cudnn.flags, side.cudnn.set_flags, side.flags):
        with pytest.raises(TypeError):
            function(**{name: True})


@pytest.mark.parametrize("name", [name for name, flag in SWITCHES.items() if flag.reached == "attribute"])
def test_deleting_a_switch_is_an_attribute_error(side: Any, name: str) -> None:
    holder = side
    path, _, attribute = name.rpartition(".")
    for part in path.split(".") if path else ():
        holder = getattr(holder, part)

    with pytest.raises(AttributeError):
        delattr(holder, attribute)


@pytest.mark.parametrize(
    "name",
    ["nosuch", "cuda.nosuch", "cuda.matmul.nosuch", "cudnn.nosuch", "cudnn.conv.nosuch",
     "cudnn.rnn.nosuch", "mkldnn.matmul.nosuch", "mps.nosuch", "quantized.nosuch", "xnnpack.nosuch"],
)  # fmt: skip
def test_reading_an_unknown_name_is_an_attribute_error_that_names_it(side: Any, name: str) -> None:
    holder = side
    path, _, attribute = name.rpartition(".")
    for part in path.split(".") if path else ():
        holder = getattr(holder, part)

    with pytest.raises(AttributeError, match="nosuch"):
        getattr(holder, attribute)
    assert getattr(holder, attribute, "absent") == "absent"


@pytest.mark.parametrize("name", ["cuda.matmul", "cudnn.conv", "mkldnn.matmul"])
def test_an_object_with_switches_refuses_an_unknown_one(side: Any, name: str) -> None:
    module, _, attribute = name.partition(".")
    holder = getattr(getattr(side, module), attribute)

    with pytest.raises(AttributeError, match="nosuch"):
        holder.nosuch = 1


def test_answers_are_not_assigned(side: Any) -> None:
    with pytest.raises(RuntimeError, match="Assignment not supported"):
        side.quantized.supported_engines = []
    with pytest.raises(RuntimeError, match="Assignment not supported"):
        side.xnnpack.enabled = True


def test_a_switch_that_was_set_in_one_thread_is_read_in_another(side: Any) -> None:
    seen: list[bool] = []
    side.cudnn.benchmark = True
    try:
        thread = threading.Thread(target=lambda: seen.append(side.cudnn.benchmark))
        thread.start()
        thread.join()
    finally:
        side.cudnn.benchmark = False
    assert seen == [True]


def test_set_flags_returns_what_was_and_leaves_what_is_none(side: Any) -> None:
    cudnn, mkldnn = side.cudnn, side.mkldnn
    found = (True, False, cudnn.benchmark_limit, False, True, "none", "auto")
    assert cudnn.set_flags(_benchmark=True) == found
    assert cudnn.set_flags(_benchmark=False) == (True, True, *found[2:])
    assert mkldnn.set_flags(_deterministic=False) == (True, False, None, "none")
    assert side.nnpack.set_flags(True) == (True,)
    assert side.miopen.set_flags() == (False,)
    assert side.set_flags() == ("none",)


@without_cuda
def test_the_manager_of_plan_caches_refuses_alike_where_there_is_no_gpu(side: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    caches = side.cuda.cufft_plan_cache
    for index in (0, -1, "cuda:0"):
        with pytest.raises(RuntimeError, match="0 <= device index < 0"):
            caches[index]
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        caches["cpu"]
    for name in ("size", "max_size", "clear"):
        with pytest.raises(AssertionError):
            getattr(caches, name)
    with pytest.raises(RuntimeError):
        _ = side.cuda.cuFFTPlanCache(0).size
    with pytest.raises(RuntimeError, match="read-only"):
        side.cuda.cuFFTPlanCache(0).size = 3


@pytest.mark.parametrize("name", ["is_macos_or_newer", "is_macos13_or_newer", "get_name", "get_core_count"])
def test_questions_about_a_mac_are_refused_alike_elsewhere(side: Any, name: str) -> None:
    import sys

    if sys.platform == "darwin":
        pytest.skip("this is a Mac")
    arguments = (13, 0) if name == "is_macos_or_newer" else ()
    with pytest.raises(RuntimeError if name.startswith("is_") else AttributeError):
        getattr(side.mps, name)(*arguments)


def test_what_cudnn_takes_is_asked_alike(side: Any) -> None:
    assert side.cudnn.is_acceptable(torch.zeros(2)) is False
    with pytest.raises(AttributeError):
        side.cudnn.is_acceptable(3)
    side.cudnn.enabled = False
    try:
        assert side.cudnn.is_acceptable(torch.zeros(2)) is False
    finally:
        side.cudnn.enabled = True


@without_cuda
def test_a_dropout_state_needs_a_gpu(side: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(AssertionError):
        side.cudnn.rnn.init_dropout_state(0.5, True, 0, {})


def test_what_must_not_be_pickled_is_pickled_empty(side: Any) -> None:
    import pickle

    held = side.cudnn.rnn.Unserializable([1])
    assert held.get() == [1]
    assert pickle.loads(pickle.dumps(held)).get() is None


def test_the_deprecated_name_of_a_scope_warns(side: Any) -> None:
    with pytest.warns(FutureWarning):
        scope = side.cuda.sdp_kernel(enable_flash=False)
    with scope as given:
        assert given == {}
        assert side.cuda.flash_sdp_enabled() is False
        assert side.cuda.math_sdp_enabled() is True
    assert side.cuda.flash_sdp_enabled() is True

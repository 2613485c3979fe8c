"""torch's manager of the cuFFT plan caches: sizes, indices and errors."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.cuda.plan_cache import cufft_plan_cache, cuFFTPlanCacheManager
from mlbackends.libraries.cuda import in_process


@pytest.fixture
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch, 1)


def devices(monkeypatch: pytest.MonkeyPatch, count: int, current: int = 0) -> None:
    monkeypatch.setattr(in_process, "device_count", lambda: count)
    monkeypatch.setattr(in_process, "current_device", lambda: current)
    monkeypatch.setattr("mlbackends.cuda.plan_cache._maximums", {})


def test_without_a_device_the_manager_has_no_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch, 0)
    for use in (
        lambda: cufft_plan_cache.size,
        lambda: cufft_plan_cache.max_size,
        lambda: cufft_plan_cache.clear(),  # noqa: PLW0108  asked for at the call, not here
        lambda: setattr(cufft_plan_cache, "max_size", 3),
    ):
        with pytest.raises(AssertionError, match="not compiled with CUDA"):
            use()


class Device:
    def __init__(self, type: str, index: int | None) -> None:  # noqa: A002
        self.type, self.index = type, index

    def __repr__(self) -> str:
        return f"{self.type}:{self.index}"


@pytest.mark.parametrize(
    ("index", "error", "fragment"),
    [
        ("cpu", ValueError, "Expected a cuda device, but got: cpu"),
        ("xpu:0", ValueError, "Expected a cuda device"),
        ("cuda", ValueError, "a specified index or an integer, but got: 'cuda'"),
        (None, ValueError, "a specified index or an integer"),
        (1.5, ValueError, "a specified index or an integer"),
        (Device("cpu", 0), ValueError, "Expected a cuda device"),
        (Device("cuda", None), ValueError, "a specified index"),
        ("cuda:x", RuntimeError, "Invalid device string"),
        ("bogus", RuntimeError, "Invalid device string: 'bogus'"),
        ("cuda:-1", RuntimeError, "Invalid device string"),
        ("cuda:9999999999999", RuntimeError, "Invalid device string"),
        (1, RuntimeError, "expected 0 <= device index < 1, but got device with index 1"),
        (-1, RuntimeError, "but got device with index -1"),
    ],
)
def test_what_is_no_device_here_is_refused(
    one_device: None, index: Any, error: type[Exception], fragment: str
) -> None:
    with pytest.raises(error) as caught:
        cufft_plan_cache[index]
    assert fragment in str(caught.value)


@pytest.mark.parametrize("index", [0, "cuda:0", Device("cuda", 0)])
def test_a_device_is_named_in_any_way(one_device: None, index: Any) -> None:
    cufft_plan_cache[index].max_size = 11
    assert cufft_plan_cache[0].max_size == cufft_plan_cache.max_size == 11


def test_each_device_has_a_size_of_its_own_and_the_manager_is_the_current_one_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices(monkeypatch, 3, current=1)
    cufft_plan_cache.max_size = 5
    cufft_plan_cache[2].max_size = 6
    assert [cufft_plan_cache[i].max_size for i in range(3)] == [4096, 5, 6]
    assert cufft_plan_cache[1].device_index == 1


def test_the_size_cannot_be_set(one_device: None) -> None:
    with pytest.raises(RuntimeError, match=r"\.size is a read-only property"):
        cufft_plan_cache[0].size = 3
    with pytest.raises(RuntimeError, match=r"\.size is a read-only property"):
        cufft_plan_cache.size = 3


@pytest.mark.parametrize(
    ("value", "error"),
    [(-1, RuntimeError), (2**63, RuntimeError), ("3", TypeError), (1.0, TypeError),
     (True, TypeError), (None, TypeError)],
)  # fmt: skip
def test_a_maximum_that_makes_no_sense_changes_nothing(
    one_device: None, value: Any, error: type[Exception]
) -> None:
    cufft_plan_cache.max_size = 9
    with pytest.raises(error):
        cufft_plan_cache.max_size = value
    assert cufft_plan_cache.max_size == 9


@pytest.mark.parametrize("value", [0, 1, 2**63 - 1])
def test_a_maximum_may_be_anything_from_none_to_the_largest(one_device: None, value: int) -> None:
    cufft_plan_cache.max_size = value
    assert cufft_plan_cache.max_size == value


def test_a_typo_is_refused_with_the_name_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch, 0)
    with pytest.raises(AttributeError, match="did you mean 'max_size'"):
        cufft_plan_cache.maxsize = 3
    with pytest.raises(AttributeError, match="did you mean 'max_size'"):
        cufft_plan_cache.max_siz  # noqa: B018
    with pytest.raises(AttributeError, match=r"^cufft_plan_cache.clear cannot be set$"):
        cufft_plan_cache.clear = None
    assert not hasattr(cufft_plan_cache, "__len__")
    assert {"size", "max_size", "clear"} <= set(dir(cufft_plan_cache))


def test_the_caches_of_all_devices_are_made_when_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices(monkeypatch, 3)
    manager = cuFFTPlanCacheManager()
    assert manager.caches == []
    second = manager[1]
    assert [cache.device_index for cache in manager.caches] == [0, 1, 2]
    assert manager["cuda:1"] is second is manager.caches[1]
    with pytest.raises(AttributeError, match="caches cannot be set"):
        manager.caches = []
    assert "caches" in dir(manager)


def test_where_there_is_no_device_there_are_no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    devices(monkeypatch, 0)
    manager = cuFFTPlanCacheManager()
    with pytest.raises(RuntimeError, match="expected 0 <= device index < 0"):
        manager[0]
    assert manager.caches == []


def test_a_cache_is_empty_and_can_be_cleared(one_device: None) -> None:
    cufft_plan_cache.clear()
    assert cufft_plan_cache.size == cufft_plan_cache[0].size == 0

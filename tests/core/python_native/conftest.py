"""Each test begins with the process's overrides as they are at the start, and leaves them so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.python_native import dsls, filters, overrides
from mlbackends.sdpa import dispatch
from mlbackends.switches import store

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHES = (
    dsls.is_available,
    overrides.declared_overrides,
    dispatch.backends,
    registry.names,
    registry.load,
    registry._entry_points,
)


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in (
        "TORCH_DISABLE_NATIVE_JIT",
        "TORCH_NATIVE_SKIP_VERSION_CHECK",
        overrides.ORDER_FUNCTION,
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(filters, "_off", {})
    monkeypatch.setattr(overrides, "_graphs", {})
    monkeypatch.setattr(overrides, "_is_registered", False)
    for cache in CACHES:
        cache.cache_clear()
    store.forget()
    yield
    for cache in CACHES:
        cache.cache_clear()
    store.forget()

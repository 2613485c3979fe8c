"""Each test begins with the process's overrides as they are at the start, and leaves them so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.model import registry
from mlbackends.python_native import dsl_registry, environment, filters, override_graph, own_kernels
from mlbackends.sdpa import dispatch

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHES = (
    environment.is_one,
    own_kernels.declared_overrides,
    dispatch.backends,
    registry.names,
    registry.load,
    registry._added,
)


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in (
        environment.DISABLE_JIT,
        environment.SKIP_VERSION_CHECK,
        environment.ORDER_FUNCTION,
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(filters, "_off", {})
    monkeypatch.setattr(override_graph, "_graphs", {})
    monkeypatch.setattr(dsl_registry, "_entries", dict(dsl_registry._entries))
    monkeypatch.setattr(own_kernels, "_begun", [])
    own_kernels._registered.clear()
    for cache in CACHES:
        cache.cache_clear()
    yield
    own_kernels._registered.clear()
    for cache in CACHES:
        cache.cache_clear()

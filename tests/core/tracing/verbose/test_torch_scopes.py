"""The level of torch's own scope, found where such a scope is entered and nowhere else."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import ModuleType
from typing import Self

import pytest

from mlbackends.tracing.verbose.levels import level_of_torch


class verbose:  # noqa: N801  torch's name
    def __init__(self, level: int) -> None:
        self.level = level

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture(autouse=True)
def torch_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch.backends.mkldnn")
    module.verbose = verbose  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.backends.mkldnn", module)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="a with statement keeps no bound method")
def test_a_scope_that_is_entered_tells_its_level() -> None:
    with verbose(1):
        assert level_of_torch() == 1
    assert level_of_torch() is None


def test_a_scope_in_a_stack_tells_its_level() -> None:
    with ExitStack() as stack:
        stack.enter_context(verbose(2))
        assert level_of_torch() == 2


def test_a_scope_that_is_only_made_or_has_ended_is_none() -> None:
    kept = verbose(1)
    assert level_of_torch() is None
    with kept:
        pass
    assert level_of_torch() is None


def test_a_scope_of_level_0_is_none_since_torch_sets_nothing() -> None:
    with ExitStack() as stack:
        stack.enter_context(verbose(0))
        assert level_of_torch() is None


def test_scopes_that_disagree_tell_nothing() -> None:
    with ExitStack() as stack:
        stack.enter_context(verbose(1))
        stack.enter_context(verbose(2))
        assert level_of_torch() is None


def test_without_torch_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.backends.mkldnn")
    assert level_of_torch() is None

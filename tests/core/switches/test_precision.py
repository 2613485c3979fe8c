"""The older switch of float32 products, and freezing, as functions of the package."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

import mlbackends
from mlbackends.switches import store

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def a_fresh_start() -> Iterator[None]:
    store.forget()
    yield
    store.forget()


@pytest.mark.parametrize(
    ("word", "allowed"), [("highest", False), ("high", True), ("medium", True)]
)
def test_a_word_is_read_back_and_reaches_cublas(word: str, allowed: bool) -> None:
    mlbackends.set_float32_matmul_precision(word)

    assert mlbackends.get_float32_matmul_precision() == word
    assert mlbackends.cuda.matmul.allow_tf32 is allowed


@pytest.mark.parametrize("word", ["High", "tf32", "", None, 1, b"high", True])
def test_anything_else_is_a_runtime_error_and_changes_nothing(word: Any) -> None:
    mlbackends.set_float32_matmul_precision("high")

    with pytest.raises(RuntimeError, match="float32_matmul_precision"):
        mlbackends.set_float32_matmul_precision(word)
    assert mlbackends.get_float32_matmul_precision() == "high"


def test_the_new_switch_makes_the_old_one_unreadable() -> None:
    mlbackends.fp32_precision = "tf32"

    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
        mlbackends.get_float32_matmul_precision()


def test_freezing_has_no_way_back_but_a_scope() -> None:
    assert mlbackends.flags_frozen() is False
    mlbackends.disable_global_flags()
    assert mlbackends.flags_frozen() is True

    with pytest.raises(RuntimeError, match="after disable_global_flags"):
        mlbackends.fp32_precision = "ieee"
    with getattr(mlbackends, "__allow_nonbracketed_mutation")():
        assert mlbackends.flags_frozen() is False
        mlbackends.fp32_precision = "ieee"
    assert (mlbackends.flags_frozen(), mlbackends.fp32_precision) == (True, "ieee")


def test_the_functions_take_what_torchs_take() -> None:
    wanted = {
        "disable_global_flags": "()",
        "flags_frozen": "()",
        "get_float32_matmul_precision": "()",
        "set_float32_matmul_precision": "(precision)",
        "flags": "(fp32_precision='none')",
        "set_flags": "(_fp32_precision='none')",
    }
    for name, parameters in wanted.items():
        found = inspect.signature(getattr(mlbackends, name)).parameters.values()
        bare = [each.replace(annotation=inspect.Parameter.empty) for each in found]
        assert str(inspect.Signature(bare)) == parameters

"""The older switch of float32 products, and freezing, as functions of the package."""

from __future__ import annotations

from typing import Any

import pytest

import mlbackends

pytestmark = pytest.mark.usefixtures("fresh_switches")


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

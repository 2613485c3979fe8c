"""The parts of cuda that are its own: what is built, and that its names come from where they are."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from mlbackends import cuda
from mlbackends.model.records import Presence, ProbeReport

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("parts", "built"), [((), False), (("nvrtc",), True), (("cudnn",), True), (("cublas",), False)]
)
def test_it_is_built_where_a_part_is_that_we_compute_with(
    parts: tuple[str, ...], built: bool, reported: Callable[..., None]
) -> None:
    reported(**dict.fromkeys(parts, ProbeReport(presence=Presence.FOUND)))

    assert cuda.is_built() is built


def test_composable_kernels_attention_is_nowhere() -> None:
    assert cuda.is_ck_sdpa_available() is False


def test_each_name_is_the_one_of_its_module() -> None:
    module = importlib.import_module("mlbackends.cuda")
    for name, source in module._LAZY.items():
        path, _, attribute = source.partition(":")
        assert getattr(cuda, name) is getattr(importlib.import_module(path), attribute)
    assert {name for name in module.__all__ if not hasattr(cuda, name)} == set()

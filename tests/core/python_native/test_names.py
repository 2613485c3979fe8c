"""Names that kernels have, and all others."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.python_native import filters, overrides
from mlbackends.python_native.filters import key_of_platform
from mlbackends.python_native.overrides import DISPATCH_KEYS, Override


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (filters.DSL, "triton"),
        (filters.DSL, "cutedsl"),
        (filters.DSL, "native"),
        (filters.OPERATION, "bmm"),
        (filters.OPERATION, "scaled_dot_product_attention"),
        (filters.DISPATCH_KEY, "CUDA"),
        (filters.DISPATCH_KEY, "AutogradCPU"),
    ],
)
def test_what_torch_and_we_have_is_known_everywhere(kind: str, name: str) -> None:
    assert overrides.checked(kind, [name]) == (name,)


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (filters.DSL, "trition", "did you mean 'triton'?"),
        (filters.DSL, "Triton", "did you mean 'triton'?"),
        (filters.OPERATION, "bbm", "did you mean 'bmm'?"),
        (filters.OPERATION, "scaled_dot_product_atention", "'scaled_dot_product_attention'?"),
        (filters.DISPATCH_KEY, "cuda", "did you mean 'CUDA'?"),
    ],
)
def test_a_typo_is_taken_and_told_of(kind: str, name: str, hint: str) -> None:
    with pytest.warns(UserWarning, match=f"there is no {kind} named {name!r}") as caught:
        assert overrides.checked(kind, [name]) == (name,)

    assert str(caught[0].message).endswith(hint)


@pytest.mark.parametrize("name", ["", " ", "invalid", "nonexistent_operation_xyz"])
@pytest.mark.parametrize("kind", [filters.DSL, filters.OPERATION, filters.DISPATCH_KEY])
def test_a_name_that_is_near_to_none_is_taken_without_a_word(kind: str, name: str) -> None:
    assert overrides.checked(kind, [name]) == (name,)


@pytest.mark.parametrize("name", [None, 3, b"bmm", ["bmm"], {}], ids=repr)
@pytest.mark.parametrize("kind", [filters.DSL, filters.OPERATION, filters.DISPATCH_KEY])
def test_what_is_no_text_is_no_name(kind: str, name: Any) -> None:
    with pytest.raises(TypeError, match=f"{kind} names must be str, got {type(name).__name__}"):
        overrides.checked(kind, [name])


def test_what_somebody_registered_is_known() -> None:
    overrides.add(
        Override(dsl_name="mine", op_symbol="frobnicate", dispatch_key="CPU", impl_fn=lambda: None)
    )

    assert overrides.checked(filters.DSL, ["mine"]) == ("mine",)
    assert overrides.checked(filters.OPERATION, ["frobnicate"]) == ("frobnicate",)


def test_no_dispatch_key_stands_twice() -> None:
    assert len(set(DISPATCH_KEYS)) == len(DISPATCH_KEYS)


@pytest.mark.parametrize(
    ("platform", "key"),
    [("cuda", "CUDA"), ("rocm", "CUDA"), ("cpu", "CPU"), ("npu", "PrivateUse1")],
)
def test_each_platform_has_torchs_key(platform: str, key: str) -> None:
    assert key_of_platform(platform) == key
    assert key in DISPATCH_KEYS

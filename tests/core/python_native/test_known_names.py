"""Names that are known, and the refusal of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.model.errors import UnknownName
from mlbackends.python_native import filters, known_names
from mlbackends.python_native.dispatch_keys import DISPATCH_KEYS, of_platform
from mlbackends.python_native.override_graph import register_op_override
from mlbackends.python_native.switching import deregister_op_overrides, reenable_op_overrides

if TYPE_CHECKING:
    from collections.abc import Callable


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
    assert known_names.checked(kind, [name]) == (name,)


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
def test_a_typo_is_refused_with_what_was_meant(kind: str, name: str, hint: str) -> None:
    with pytest.raises(UnknownName, match=f"there is no {kind} named {name!r}") as caught:
        known_names.checked(kind, [name])

    assert caught.value.hint.endswith(hint)
    assert caught.value.__notes__ == [caught.value.hint]


@pytest.mark.parametrize("name", [None, 3, b"bmm", ["bmm"], {}], ids=repr)
@pytest.mark.parametrize("kind", [filters.DSL, filters.OPERATION, filters.DISPATCH_KEY])
def test_what_is_no_text_is_no_name(kind: str, name: Any) -> None:
    with pytest.raises(TypeError, match=f"{kind} names must be str, got {type(name).__name__}"):
        known_names.checked(kind, [name])


def test_what_somebody_registered_is_known() -> None:
    register_op_override("mine", "aten", "frobnicate", "CPU", lambda: True, lambda: None)

    assert known_names.checked(filters.DSL, ["mine"]) == ("mine",)
    assert known_names.checked(filters.OPERATION, ["frobnicate"]) == ("frobnicate",)


def test_no_dispatch_key_stands_twice() -> None:
    assert len(set(DISPATCH_KEYS)) == len(DISPATCH_KEYS)


@pytest.mark.parametrize(
    ("platform", "key"),
    [("cuda", "CUDA"), ("rocm", "CUDA"), ("cpu", "CPU"), ("npu", "PrivateUse1")],
)
def test_each_platform_has_torchs_key(platform: str, key: str) -> None:
    assert of_platform(platform) == key
    assert key in DISPATCH_KEYS


def test_several_kinds_are_switched_at_once_one_name_or_many() -> None:
    deregister_op_overrides(disable_dsl_names="triton", disable_op_symbols=["bmm", "topk"])

    assert not filters.is_on(filters.DSL, "triton")
    assert not filters.is_on(filters.OPERATION, "topk")
    reenable_op_overrides(enable_dsl_names=["triton"], enable_op_symbols=("bmm", "topk"))
    assert filters.is_enabled("triton", "bmm", "CUDA")


@pytest.mark.parametrize(
    "switch",
    [
        lambda: deregister_op_overrides(disable_dsl_names="triton", disable_op_symbols="bmmm"),
        lambda: deregister_op_overrides(disable_dsl_names=["triton", "tritn"]),
        lambda: deregister_op_overrides(disable_dsl_names="triton", disable_dispatch_keys="cuda"),
    ],
)
def test_one_unknown_name_and_nothing_is_switched(switch: Callable[[], None]) -> None:
    with pytest.raises(UnknownName):
        switch()

    assert filters.is_on(filters.DSL, "triton")


def test_nothing_given_switches_nothing() -> None:
    deregister_op_overrides()
    reenable_op_overrides()

    assert filters.is_enabled("triton", "bmm", "CUDA")

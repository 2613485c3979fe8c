"""Which tensors can be read, of a torch that is two classes; tests/compat has the real one."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlbackends.sdpa.describe import refuse_unreadable


class Tensor:
    """A tensor as far as it is looked at."""

    is_nested = False
    device = SimpleNamespace(type="cpu")
    tangent: object = None
    __torch_dispatch__: Any = len


class Answering(Tensor):
    """A tensor that has no storage."""

    __torch_dispatch__ = abs


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("torch")
    module.Tensor = Tensor
    module.autograd = SimpleNamespace(forward_ad=SimpleNamespace(unpack_dual=lambda each: each))
    module._C = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def refuse(tensor: object, **options: bool) -> None:
    refuse_unreadable({"a": tensor}, "matmul(): ", **options)


def test_what_is_no_tensor_of_torch_is_passed_over(torch: Any) -> None:
    for thing in (np.ones(3), None, 3, "abc"):
        refuse(thing)
    assert torch


def test_a_plain_tensor_passes_also_with_a_torch_that_tells_little(torch: Any) -> None:
    refuse(Tensor())
    del torch.autograd.forward_ad, torch._C
    refuse(Tensor())


@pytest.mark.usefixtures("torch")
def test_a_subclass_that_answers_for_others_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"matmul\(\): a is a .*Answering: it has no storage"):
        refuse(Answering())
    nested = Answering()
    nested.is_nested = True
    refuse(nested)


@pytest.mark.usefixtures("torch")
def test_a_tangent_and_missing_values_are_refused() -> None:
    tensor = Tensor()
    tensor.tangent = 1
    with pytest.raises(RuntimeError, match="carries a tangent"):
        refuse(tensor)
    tensor = Tensor()
    tensor.device = SimpleNamespace(type="meta")
    with pytest.raises(RuntimeError, match="meta device"):
        refuse(tensor)
    refuse(tensor, meta=True)


@pytest.mark.parametrize(
    ("batched", "tracked", "said"),
    [(True, False, "batched by vmap"), (False, True, "a tangent of torch.func"),
     (False, False, "being traced by torch.func")],
)  # fmt: skip
def test_what_torch_func_has_wrapped_is_refused(
    torch: Any, batched: bool, tracked: bool, said: str
) -> None:
    torch._C._functorch = SimpleNamespace(
        is_functorch_wrapped_tensor=lambda _: True,
        is_batchedtensor=lambda _: batched,
        is_gradtrackingtensor=lambda _: tracked,
    )
    with pytest.raises(RuntimeError, match=said):
        refuse(Tensor())


def test_a_mode_that_writes_a_graph_is_seen(torch: Any) -> None:
    torch._C._TorchDispatchModeKey = SimpleNamespace(PROXY="proxy")
    torch._C._get_dispatch_mode = {"proxy": None}.get
    refuse(Tensor())
    torch._C._get_dispatch_mode = {"proxy": object()}.get
    with pytest.raises(RuntimeError, match="would be a constant of the graph"):
        refuse(Tensor())

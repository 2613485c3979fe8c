from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from mlbackends.model.errors import NoBackend
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.python_native import dsls
from mlbackends.sdpa.dispatch import choose
from mlbackends_kernels.flash_triton import FlashTriton

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kernels.conftest import OnFakeCuda

HOPPER = Device("cuda", 0, capability="9.0")


def problem(
    shape: tuple[int, ...] = (2, 8, 100, 64),
    dtype: str = "bfloat16",
    key: tuple[int, ...] | None = None,
    value: tuple[int, ...] | None = None,
    device: Device = HOPPER,
    strides: tuple[int, ...] = (),
    requires_grad: bool = False,
    **more: Any,
) -> AttentionProblem:
    query = TensorSpec(shape, dtype, strides=strides, requires_grad=requires_grad)
    keys = TensorSpec(key or shape, dtype)
    return AttentionProblem(
        query=query, key=keys, value=TensorSpec(value or key or shape, dtype), device=device, **more
    )


def codes(asked: AttentionProblem) -> list[str]:
    return [reason.code for reason in FlashTriton().unsupported_reasons(asked)]


TAKEN = {
    "plain": problem(),
    "float16": problem(dtype="float16"),
    "float32": problem(dtype="float32"),
    "causal": problem(is_causal=True),
    "lower right": problem(key=(2, 8, 300, 64), is_causal=True, lower_right=True),
    "grouped heads": problem(key=(2, 2, 300, 64), enable_gqa=True),
    "key and value grouped otherwise": problem(
        key=(2, 2, 300, 64), value=(2, 4, 300, 64), enable_gqa=True
    ),
    "mask of booleans": problem(mask=TensorSpec((100, 100), "bool")),
    "mask of numbers": problem(mask=TensorSpec((2, 1, 100, 100), "bfloat16")),
    "mask of float32": problem(mask=TensorSpec((1, 1, 1, 100), "float32")),
    "head_dim 256": problem((1, 1, 10, 256)),
    "odd head_dim": problem((1, 1, 10, 77)),
    "value narrower": problem(value=(2, 8, 100, 16)),
    "no key": problem(key=(2, 8, 0, 64)),
    "broadcast batch": problem(key=(1, 8, 100, 64)),
    "sm80": problem(device=Device("cuda", 0, capability="8.0")),
    "sm121": problem(device=Device("cuda", 0, capability="12.1")),
    "part of a GPU": problem(device=Device("mig", 0, capability="9.0")),
}

REFUSED = {
    "wrong-device": problem(device=Device("cpu", 0)),
    "wrong-capability": problem(device=Device("cuda", 0, capability="7.5")),
    "wrong-rank": problem((8, 100, 64)),
    "wrong-dtype": problem(dtype="float64"),
    "head-dim-too-large": problem((1, 1, 10, 257)),
    "rows-not-contiguous": problem((1, 1, 10, 64), strides=(640, 640, 1, 10)),
    "dropout": problem(dropout=0.5),
    "gradient": problem(requires_grad=True),
}


@pytest.mark.parametrize("name", TAKEN)
def test_it_takes(name: str) -> None:
    assert codes(TAKEN[name]) == []


@pytest.mark.parametrize("code", REFUSED)
def test_it_refuses(code: str) -> None:
    assert codes(REFUSED[code]) == [code]
    with pytest.raises(NoBackend, match="flash_triton cannot do this: "):
        FlashTriton().run(REFUSED[code], None, None, None)


def test_a_newer_gpu_than_it_is_made_for_is_refused() -> None:
    assert codes(problem(device=Device("cuda", 0, capability="13.0"))) == ["wrong-capability"]


def test_without_triton_that_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dsls.DSLS, "triton", (("triton-of-nowhere",), ("triton",), (">=3.6",)))
    (reason,) = FlashTriton().missing_parts()
    assert (reason.code, reason.message) == ("missing-part", "triton-of-nowhere is not installed")
    assert reason.hint == "pip install triton"
    with pytest.raises(NoBackend, match="flash_triton cannot run here: triton-of-nowhere"):
        FlashTriton().run(TAKEN["plain"], None, None, None)


def test_an_old_triton_without_torch_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dsls, "unavailable_reason", lambda _name: "")
    monkeypatch.setattr(dsls, "version", lambda _name: Version("3.8.1"))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    (reason,) = FlashTriton().missing_parts()
    assert reason.message == "triton 3.8.1 launches only beside torch"


def test_a_compiler_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dsls, "unavailable_reason", lambda _name: "")
    monkeypatch.setattr(dsls, "version", lambda _name: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    (reason,) = FlashTriton().missing_parts()
    assert "C compiler" in reason.message
    monkeypatch.setenv("CC", "some-compiler")
    assert FlashTriton().missing_parts() == ()


def test_importing_it_imports_no_triton(on_fake_cuda: OnFakeCuda) -> None:
    told = on_fake_cuda(
        "import sys\n"
        "from mlbackends.model import registry\n"
        "backend = registry.load('mlbackends_kernels', 'flash_triton').FlashTriton()\n"
        "backend.missing_parts()\n"
        "registry.load('mlbackends_kernels.operations', 'bmm')\n"
        "tell(sorted(name for name in sys.modules if name in ('triton', 'torch')))\n"
    )
    assert told.values == [[]]


def test_switching_triton_off_takes_it_out_of_dispatch() -> None:
    import mlbackends

    def verdict() -> list[str]:
        decision = choose(TAKEN["plain"], among=(FlashTriton(),), here=False)
        return [reason.code for reason in decision.reasons]

    assert verdict() == []
    with mlbackends.python_native.triton.disabled():
        assert verdict() == ["switched-off"]
    with mlbackends.python_native.operations_disabled("scaled_dot_product_attention"):
        assert verdict() == ["switched-off"]
    assert verdict() == []


INTERPRETED = """
import math
from mlbackends_kernels.cuda.device_array import DeviceArray as Operand
from mlbackends.sdpa import SDPBackend
# What the interpreter asks of a tensor, beside its address.
for name in ("untyped_storage", "cpu"):
    setattr(Operand, name, lambda self: self)
for name in ("copy_", "set_"):
    setattr(Operand, name, lambda self, *rest: None)
Operand.new_empty = lambda self, *rest, **more: self
Operand.storage_offset = lambda self: 0
class Count(int):
    def __call__(self): return self.shape
def size(self):
    count = Count(math.prod(self.shape))
    count.shape = self.shape
    return count
Operand.size = property(size)
Operand.stride = lambda self: self.strides

from triton.runtime import driver
class Driver:
    def set_current_device(self, device):
        tell(f"device {device}")
driver.set_active(Driver())

def array(*shape):
    return rng.standard_normal(shape).astype(np.float16)
def attended(q, k, v):
    scores = q.astype(float) @ k.astype(float).swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    weights = np.exp(np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf))
    return weights / weights.sum(-1, keepdims=True) @ v.astype(float)
"""


@pytest.mark.slow
def test_the_dispatcher_reaches_it_for_arrays_on_a_device(on_fake_cuda: OnFakeCuda) -> None:
    """The whole way: device arrays in, Triton's interpreter as the device, a device array out."""
    pytest.importorskip("triton")
    told = on_fake_cuda(
        INTERPRETED + "q, k, v = (array(1, 2, 40, 32) for _ in range(3))\n"
        "arrays = [on_device(each) for each in (q, k, v)]\n"
        "def attention(): return mlbackends.scaled_dot_product_attention(*arrays, is_causal=True)\n"
        "with mlbackends.sdpa_kernel(SDPBackend.FLASH_ATTENTION):\n"
        "    out = attention()\n"
        "    tell([type(out).__name__, float(abs(out.numpy() - attended(q, k, v)).max()) < 2e-3])\n"
        "    mlbackends.python_native.triton.enabled = False\n"
        "    name, said = error_of(attention)\n"
        "    tell([name, 'flash_triton is switched off' in said])\n",
        TRITON_INTERPRET="1",
        FAKE_CAPABILITY="90",
    )
    assert told.values == ["device 0", ["DeviceArray", True], ["NoBackend", True]]

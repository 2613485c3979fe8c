"""Attention through the whole library to a driver: which kernels are launched where, and the results.

The driver is tests/fakelibs/computing_driver.c, which runs attention.cu on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends_kernels.attention_cuda.launches import tile_of

if TYPE_CHECKING:
    from pathlib import Path

    from host_kernels import HostKernels
    from tests.kernels.conftest import OnFakeCuda

PROGRAM = """
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels import attention_cuda
attention_cuda.missing_parts = lambda: ()
def array(*shape): return rng.standard_normal(shape).astype(np.float16)
shapes = (2, 4, 70, 32), (2, 2, 70, 32), (2, 2, 70, 32), (2, 4, 70, 32)
q, k, v, coming = [array(*shape) for shape in shapes]
arrays = [on_device(each) for each in (q, k, v)]
options = dict(is_causal=True, enable_gqa=True)
forward = mlbackends.scaled_dot_product_attention
backward = mlbackends.scaled_dot_product_attention_backward
with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
    out, sums = forward(*arrays, return_logsumexp=True, **options)
    found = backward(on_device(coming), *arrays, out, sums, **options)
with mlbackends.sdpa_kernel(SDPBackend.MATH):
    right, logarithms = forward(q, k, v, return_logsumexp=True, **options)
    gradients = backward(coming, q, k, v, right, logarithms, **options)
pairs = [(out, right), (sums, logarithms), *zip(found[:3], gradients[:3])]
report([type(each).__name__ for each, _ in pairs])
report(max(float(abs(each.numpy() - other).max()) for each, other in pairs))
"""


def test_attention_and_its_gradients_come_back_from_a_driver(
    on_fake_cuda: OnFakeCuda, host_kernels: HostKernels, tmp_path: Path
) -> None:
    passes = ("forward", "summarize", "differentiate_query", "differentiate_both")
    tiles = {step: tile_of(step, "Float16", (32, 32), (9, 0)) for step in passes}
    kernels = str(host_kernels.of_the_driver(tiles))
    output = on_fake_cuda(PROGRAM, FAKE_KERNELS=kernels)

    kinds: Any
    kinds, worst = output.values
    assert set(kinds) == {"DeviceArray"} and worst < 5e-3
    grids = {"forward": 8, "summarize": 140, "differentiate_query": 16, "differentiate_both": 8}
    assert output.lines("launch attention") == [
        f"launch attention_{step} grid={grids[step]},1,1 block=128,1,1"
        f" shared={tiles[step].shared_bytes(step)} stream 1 0"
        for step in passes
    ]
    cached = (tmp_path / "cache" / "mlbackends" / "kernels" / "entries").rglob("*")
    assert len([path for path in cached if path.is_file()]) == len(passes)


CASE = """
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels import attention_cuda
attention_cuda.missing_parts = lambda *_, **__: ()
forward = mlbackends.scaled_dot_product_attention
backward = mlbackends.scaled_dot_product_attention_backward
def numbers(heads=4, rows=40): return rng.standard_normal((2, heads, rows, 32)).astype(np.float16)
def case(rows=40, view=False, device=0, mask=None, **options):
    "Return the largest error of a result, its logarithms and gradients of new tensors."
    q, k, v, coming = numbers(4, rows), numbers(2, rows), numbers(2, rows), numbers(4, rows)
    put = lambda each: on_device(each, device)
    given, extra = list(map(put, (q, k, v))), {}
    if view:  # one element on: no rows of aligned 16 bytes
        flat = put(np.concatenate([[np.float16(0)], q.ravel()]))
        given[0] = flat.viewed(q.shape, None, 1)
    if mask is not None:
        extra = {"attn_mask": put(mask)}
    options = {"enable_gqa": True, **options}
    with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        alone = forward(*given, **options, **extra)
        out, sums = forward(*given, return_logsumexp=True, **options, **extra)
        found = [alone, out, sums, *backward(put(coming), *given, out, sums, **options, **extra)[:3]]
    if mask is not None:
        extra = {"attn_mask": mask}
    with mlbackends.sdpa_kernel(SDPBackend.MATH):
        right, logs = forward(q, k, v, return_logsumexp=True, **options, **extra)
        slopes = backward(coming, q, k, v, right, logs, **options, **extra)[:3]
    wanted = [right, right, logs, *slopes]
    assert {each.device for each in found} == {device}
    return max(float(abs(one.numpy() - other).max()) for one, other in zip(found, wanted))
"""


def test_every_form_of_call_is_right(on_fake_cuda: OnFakeCuda, host_kernels: HostKernels) -> None:
    """Other addresses, strides, devices, streams, masks and options, with gradients."""
    passes = (
        "forward", "summarize", "differentiate_query", "differentiate_both", "differentiate_mask",
    )  # fmt: skip
    tiles = {step: tile_of(step, "Float16", (32, 32), (9, 0)) for step in passes}
    program = CASE + (
        "mask = rng.random((40, 40)) > 0.2\n"
        "worst = [case(**options) for options in [{}, dict(view=True), dict(device=1), dict(rows=41),\n"
        "    dict(mask=mask), dict(mask=mask[:1]), dict(is_causal=True), dict(scale=0.3)]]\n"
        "with mlbackends.cuda.on_stream(77):\n"
        "    worst.append(case())\n"
        "report(max(worst))\n"
        "q, k, v, coming = numbers(4), numbers(2), numbers(2), numbers(4)\n"
        "mask, there = rng.standard_normal((1, 40)).astype('f4'), list(map(on_device, (q, k, v)))\n"
        "def of_mask(put, *given):\n"
        "    options = dict(attn_mask=put(mask), enable_gqa=True)\n"
        "    results = forward(*given, return_logsumexp=True, **options)\n"
        "    return backward(put(coming), *given, *results, attn_mask_gradient=True, **options).mask\n"
        "with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):\n"
        "    found = of_mask(on_device, *there)\n"
        "with mlbackends.sdpa_kernel(SDPBackend.MATH):\n"
        "    right = of_mask(lambda each: each, q, k, v)\n"
        "report([list(found.shape), found.dtype, float(abs(found.numpy() - right).max())])\n"
    )
    output = on_fake_cuda(program, FAKE_KERNELS=str(host_kernels.of_the_driver(tiles)), FAKE_GPUS="2")
    assert output.values[0] < 5e-3
    shape, dtype, error = output.values[1]
    assert (shape, dtype) == ([1, 40], "float32") and error < 2e-2
    streams = {line.split()[-2] for line in output.lines("launch attention_forward")}
    assert streams == {"1", "77"}


TENSORS = """
import contextlib, torch
from types import SimpleNamespace
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels import attention_cuda
from mlbackends_kernels.cuda.devices import on_device as current
attention_cuda.missing_parts = lambda *_, **__: ()
place, kind = torch.device("cuda:0"), torch.Tensor
empty, seen, now = torch.empty, set(), [55]
class Stream(contextlib.nullcontext):
    def __init__(self, handle, device=0): self.handle = handle
    def __enter__(self): now.append(self.handle)
    def __exit__(self, *_): now.pop()
def new_empty(self, size, **options):
    seen.add(now[-1])
    return empty(size, **options)
kind.new_empty = new_empty
kind.record_stream = lambda self, stream: None
kind.is_cuda, kind.device = property(lambda _: True), property(lambda _: place)
torch.cuda.current_stream = lambda _=None: SimpleNamespace(cuda_stream=55)
torch.cuda.get_device_capability = lambda _: (9, 0)
torch.cuda.device, torch.cuda.stream = current, lambda stream: stream
torch.cuda.ExternalStream, torch.cuda.default_stream = Stream, lambda _: Stream(0)
attention = mlbackends.scaled_dot_product_attention
for wanted, stream in ((False, 55), (True, 55), (False, 77)):
    tensors = [torch.randn(2, 4, 40, 32).half().requires_grad_(wanted) for _ in range(3)]
    wide = [each.detach().double().requires_grad_(wanted) for each in tensors]
    with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), mlbackends.cuda.on_stream(stream):
        out = attention(*tensors)
        q, k, v = wide
        right = torch.softmax(q @ k.mT * 32**-0.5, -1) @ v
        pairs = [(out, right)]
        if wanted:
            coming = torch.randn(out.shape).half()
            found = torch.autograd.grad(out, tensors, coming)
            pairs += zip(found, torch.autograd.grad(right, wide, coming.double()))
    for one, other in pairs:
        assert type(one) is kind
        assert float((one - other).detach().abs().max()) < 5e-3
report(sorted(seen))
"""


@pytest.mark.torch
def test_results_for_tensors_of_torch_are_torchs_on_the_stream_of_the_call(
    on_fake_cuda: OnFakeCuda, host_kernels: HostKernels
) -> None:
    """Tensors in the host's memory that claim to be on a device: here a device's memory is the host's."""
    pytest.importorskip("torch", reason="torch is not installed")
    passes = ("forward", "summarize", "differentiate_query", "differentiate_both")
    tiles = {step: tile_of(step, "Float16", (32, 32), (9, 0)) for step in passes}
    output = on_fake_cuda(TENSORS, FAKE_KERNELS=str(host_kernels.of_the_driver(tiles)))
    assert output.values == [[55, 77]]
    assert {line.split()[-2] for line in output.lines("launch attention")} == {"55", "77"}

"""The whole way through the library to a driver: what is launched where, and what comes back.

The driver is tests/fakelibs/computing_driver.c, which has attention.cu run on the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends_kernels.attention_cuda.launches import tile_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kernels.attention_cuda.conftest import HostKernels
    from tests.kernels.conftest import OnFakeCuda

PROGRAM = """
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels.attention_cuda import requirements
requirements.missing_parts = lambda: ()
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
tell([type(each).__name__ for each, _ in pairs])
tell(max(float(abs(each.numpy() - other).max()) for each, other in pairs))
"""


def test_attention_and_its_gradients_come_back_from_a_driver(
    on_fake_cuda: OnFakeCuda, host_kernels: HostKernels, tmp_path: Path
) -> None:
    passes = ("forward", "summarize", "differentiate_query", "differentiate_both")
    tiles = {each: tile_of(each, "Float16", (32, 32), (9, 0)) for each in passes}
    kernels = str(host_kernels.of_the_driver(tiles))
    told = on_fake_cuda(PROGRAM, FAKE_KERNELS=kernels)

    kinds: Any
    kinds, worst = told.values
    assert set(kinds) == {"DeviceArray"} and worst < 5e-3
    grids = {"forward": 8, "summarize": 140, "differentiate_query": 16, "differentiate_both": 8}
    assert told.lines("launch attention") == [
        f"launch attention_{each} grid={grids[each]},1,1 block=128,1,1"
        f" shared={tiles[each].shared_bytes(each)} stream 1 0"
        for each in passes
    ]
    assert len(list((tmp_path / "cache" / "mlbackends" / "kernels").iterdir())) == len(passes)


REPEATED = """
from mlbackends.sdpa import SDPBackend, attend, call_cache
from mlbackends_kernels.attention_cuda import requirements
from mlbackends_kernels.cuda.device_array import empty
requirements.missing_parts = lambda *_, **__: ()
forward = mlbackends.scaled_dot_product_attention
backward = mlbackends.scaled_dot_product_attention_backward
looked_at = []
def requested(*args, real=attend.requested, **fields):
    looked_at.append(args[0].name)
    return real(*args, **fields)
attend.requested = requested
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
def on_devices(count):
    return looked_at.count("scaled_dot_product_attention") - count
"""


def test_what_repeats_is_looked_at_twice_and_stays_right(
    on_fake_cuda: OnFakeCuda, host_kernels: HostKernels
) -> None:
    """New tensors of one form, at other addresses; another form, device, stream or mask is met anew."""
    passes = (
        "forward",
        "summarize",
        "differentiate_query",
        "differentiate_both",
        "differentiate_mask",
    )
    tiles = {each: tile_of(each, "Float16", (32, 32), (9, 0)) for each in passes}
    program = REPEATED + (
        "worst = [case() for _ in range(5)]\n"
        "seen = len(looked_at)\n"
        "attend.requested = None\n"
        "given = [on_device(numbers(heads)) for heads in (4, 2, 2)]\n"
        "with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):\n"
        "    forward(*given, enable_gqa=True)\n"
        "    with mlbackends.cuda.on_stream(77):\n"
        "        forward(*given, enable_gqa=True)\n"
        "attend.requested = requested\n"
        "mask = rng.random((40, 40)) > 0.2\n"
        "for options in [{}, dict(view=True), dict(device=1), dict(rows=41), dict(mask=mask),\n"
        "                dict(mask=mask[:1]), dict(is_causal=True), dict(scale=0.3)]:\n"
        "    worst += [case(**options) for _ in range(3)]\n"
        "tell(max(worst))\n"
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
        "tell([list(found.shape), found.dtype, float(abs(found.numpy() - right).max())])\n"
    )
    told = on_fake_cuda(program, FAKE_KERNELS=str(host_kernels.of_the_driver(tiles)), FAKE_GPUS="2")
    assert told.values[0] < 5e-3
    shape, dtype, error = told.values[1]
    assert (shape, dtype) == ([1, 40], "float32") and error < 2e-2
    streams = {line.split()[-2] for line in told.lines("launch attention_forward")}
    assert streams == {"1", "77"}


def test_threads_share_what_is_prepared(on_fake_cuda: OnFakeCuda) -> None:
    program = REPEATED + (
        "import sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "sys.setswitchinterval(1e-6)\n"
        "q, k, v = [on_device(numbers(heads)) for heads in (4, 2, 2)]\n"
        "others = [on_device(numbers(4)) for _ in range(4)]\n"
        "def many(query):\n"
        "    for _ in range(50): forward(query, k, v, enable_gqa=True)\n"
        "with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):\n"
        "    many(q)\n"
        "with ThreadPoolExecutor(4) as four, mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):\n"
        "    list(four.map(many, others))\n"
        "tell([f'{each.pointer:x}' for each in (q, *others)])\n"
    )
    told = on_fake_cuda(program, FAKE_KERNELS="/nothing", FAKE_PARAMETERS="8")
    found = [line.split()[1] for line in told.lines("arguments ")]
    assert {each: found.count(each) for each in told.values[0]} == dict.fromkeys(told.values[0], 50)


TENSORS = """
import torch
from types import SimpleNamespace
from mlbackends.sdpa import SDPBackend, attend
from mlbackends_kernels.attention_cuda import requirements
requirements.missing_parts = lambda *_, **__: ()
place, kind = torch.device("cuda:0"), torch.Tensor
empty = torch.empty
kind.new_empty = lambda self, size, **options: empty(size, **options)
guards = torch._C._dynamo.guards
guards._empty_strided_cuda = guards._empty_strided_cpu
kind.is_cuda, kind.device = property(lambda _: True), property(lambda _: place)
torch.cuda.current_stream = lambda _=None: SimpleNamespace(cuda_stream=55)
torch.cuda.get_device_capability = lambda _: (9, 0)
attention, requested = mlbackends.scaled_dot_product_attention, attend.requested
for wanted in (False, True):
    if wanted:  # what a torch with CUDA has
        torch._C._cuda_getCurrentRawStream = lambda index: 56 + index
    for call in range(5):
        attend.requested = requested if call < 3 else None
        tensors = [torch.randn(2, 4, 40, 32).half().requires_grad_(wanted) for _ in range(3)]
        wide = [each.detach().double().requires_grad_(wanted) for each in tensors]
        with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
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
tell("right")
"""


@pytest.mark.torch
def test_tensors_of_torch_are_not_looked_at_for_ever(
    on_fake_cuda: OnFakeCuda, host_kernels: HostKernels
) -> None:
    """Tensors of the host's memory, which say that they lie on a device: theirs is the host's here."""
    pytest.importorskip("torch", reason="torch is not installed")
    passes = ("forward", "summarize", "differentiate_query", "differentiate_both")
    tiles = {each: tile_of(each, "Float16", (32, 32), (9, 0)) for each in passes}
    told = on_fake_cuda(TENSORS, FAKE_KERNELS=str(host_kernels.of_the_driver(tiles)))
    assert told.values == ["right"]
    assert {line.split()[-2] for line in told.lines("launch attention")} == {"55", "56"}


RESULTS = """
import contextlib, torch
from torch.overrides import BaseTorchFunctionMode
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels.attention_cuda import requirements
from mlbackends_kernels.cuda.devices import current_device, on_device as on_device_number
requirements.missing_parts = lambda *_, **__: ()
kind, guards, current, seen = torch.Tensor, torch._C._dynamo.guards, [55], []
kind.is_cuda, kind.device = True, torch.device("cuda:1")
torch.cuda.get_device_capability = lambda _: (9, 0)
torch._C._cuda_getCurrentRawStream = lambda index: current[-1]
class Stream(contextlib.nullcontext):
    def __init__(self, handle, device=0): self.handle = handle
    def __enter__(self): current.append(self.handle)
    def __exit__(self, *_): current.pop()
torch.cuda.ExternalStream, torch.cuda.default_stream = Stream, lambda _: Stream(0)
torch.cuda.device, torch.cuda.stream = on_device_number, lambda stream: stream
kind.record_stream = lambda each, stream: seen.append(f"held {stream.handle}")
def noted(name, make):
    def made(*args, **options):
        seen.append(f"{name} {current[-1]} cuda:{current_device()}")
        return make(*args, **options)
    return made
new_empty = noted("new_empty", kind.new_empty)
kind.new_empty = lambda each, *args, **options: new_empty(each, *args, **options)
if hasattr(guards, "_empty_strided_cuda"):
    guards._empty_strided_cuda = noted("empty_strided", guards._empty_strided_cpu)
tensors = [torch.ones(2, 4, 40, 32).half() for _ in range(3)]
def called(scope=None):
    "Return what a call allocated with on which of torch's streams, and whether for inference."
    seen.clear()
    with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), scope or contextlib.nullcontext():
        out = mlbackends.scaled_dot_product_attention(*tensors)
    assert type(out) is kind and out.shape == tensors[0].shape and out.is_contiguous()
    return [*dict.fromkeys(seen), out.is_inference()]
"""


@pytest.mark.torch
def test_results_beside_torchs_tensors_are_allocated_by_torch_on_the_stream_of_the_call(
    on_fake_cuda: OnFakeCuda,
) -> None:
    """Without the dispatcher where nothing listens to it; the inputs are held for another stream."""
    pytest.importorskip("torch", reason="torch is not installed")
    told = on_fake_cuda(
        RESULTS
        + """
for _ in range(4): found = called()
tell(found)
tell(called(torch.inference_mode()))
tell(called(Stream(66)))
tell(called(mlbackends.cuda.on_stream(77)))
tell(called(mlbackends.cuda.on_stream(1)))
tell(called(BaseTorchFunctionMode()))
""",
        FAKE_KERNELS="/nothing",
        FAKE_GPUS="2",
    )
    assert told.values == [
        ["empty_strided 55 cuda:1", False],
        ["empty_strided 55 cuda:1", True],
        ["empty_strided 66 cuda:1", False],
        ["held 77", "new_empty 77 cuda:1", False],
        ["held 0", "new_empty 0 cuda:1", False],
        ["new_empty 55 cuda:1", False],
    ]
    streams = [line.split()[-2] for line in told.lines("launch attention_forward")]
    assert streams == [*["55"] * 5, "66", "77", "1", "55"]


@pytest.mark.torch
def test_a_torch_without_the_short_way_to_allocate_is_asked_the_usual_one(
    on_fake_cuda: OnFakeCuda,
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    program = RESULTS.replace("if hasattr", "del guards._empty_strided_cuda\nif hasattr")
    program += "for _ in range(4): tell(called())\n"
    told = on_fake_cuda(program, FAKE_KERNELS="/nothing", FAKE_GPUS="2")
    assert told.values == [["new_empty 55 cuda:1", False]] * 4


def test_more_shared_memory_than_usual_is_asked_for_once(
    on_fake_cuda: OnFakeCuda,
) -> None:
    program = PROGRAM.partition("with ")[0].replace("32)", "128)") + (
        "for _ in range(2):\n"
        "    with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):\n"
        "        forward(*arrays, **options)\n"
    )
    told = on_fake_cuda(program, FAKE_KERNELS="/nothing")
    tile = tile_of("forward", "Float16", (128, 128), (9, 0))
    assert told.lines("cuKernelSetAttribute") == [
        f"cuKernelSetAttribute 8 {tile.shared_bytes('forward')}"
    ]
    assert len(told.lines("launch attention_forward")) == 2

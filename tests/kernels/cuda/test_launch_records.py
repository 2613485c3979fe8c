"""What our kernels are launched with, as a driver sees it: sizes, stream, and each argument."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("numpy")

from mlbackends_kernels.attention_cuda.launches import Call, tile_of

if TYPE_CHECKING:
    from tests.kernels.conftest import OnFakeCuda, Output

ATTENTION = """
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels import attention_cuda
attention_cuda.missing_parts = lambda *_, **__: ()
q = on_device(np.zeros((2, 4, 70, 32), "f2"))
k, v = (on_device(np.zeros((2, 2, 90, width), "f2")) for width in (32, 24))
mask = on_device(np.zeros((4, 1, 90), "f2"))
def attend(kind, **options):
    with mlbackends.sdpa_kernel(kind), mlbackends.cuda.on_stream(55):
        return mlbackends.scaled_dot_product_attention(
            q, k, v, mask, enable_gqa=True, scale=0.5, return_logsumexp=True, **options)
"""


def arguments(output: Output) -> list[list[int]]:
    """Return the words of each launch's arguments."""
    lines = output.lines("arguments ")
    return [[int(word, 16) for word in line.split()[1:-2]] for line in lines]


def structure(kind: Any, words: list[int]) -> Any:
    data = b"".join(word.to_bytes(8, "little") for word in words)
    return kind.from_buffer_copy(data.ljust(ctypes.sizeof(kind), b"\0"))


def test_attention_is_handed_every_tensor_s_address_and_strides(on_fake_cuda: OnFakeCuda) -> None:
    tile = tile_of("forward", "Float16", (32, 24), (9, 0))
    output = on_fake_cuda(
        ATTENTION
        + """
for _ in range(2):
    out, logs = attend(SDPBackend.EFFICIENT_ATTENTION)
    report([each.pointer for each in (q, k, v, mask, out, logs)])
""",
        FAKE_PARAMETERS=str(ctypes.sizeof(Call)),
        FAKE_KERNELS="/nothing",
    )
    blocks = -(-70 // tile.rows) * 2 * 4
    sizes = f"grid={blocks},1,1 block={32 * tile.warps},1,1 shared={tile.shared_bytes('forward')}"
    assert output.lines("launch attention") == [f"launch attention_forward {sizes} stream 55 0"] * 2
    names = ("query", "key", "value", "mask", "out", "logsumexp")
    for words, addresses in zip(arguments(output), output.values, strict=True):
        call = structure(Call, words)
        assert [getattr(call, name).at for name in names] == addresses
        assert (call.query.batch, call.query.head, call.query.row) == (8960, 2240, 32)
        assert (call.key.group, call.value.row, call.mask.head, call.mask.row) == (2, 24, 90, 0)
        assert (call.rows, call.keys, call.head_dim, call.value_dim) == (70, 90, 32, 24)
        assert (call.scale, call.mask_kind) == (0.5, 2)


def test_a_result_of_ours_is_not_allocated_in_a_graph(on_fake_cuda: OnFakeCuda) -> None:
    """No node of the graph would free it, and CUDA does not launch such a graph twice."""
    output = on_fake_cuda(
        ATTENTION
        + """
from cuda.core import Device
from mlbackends_kernels.cuda import devices
attention = mlbackends.scaled_dot_product_attention
with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
    attention(q, k, v, mask, enable_gqa=True)  # compiles
    builder = Device(0).create_stream().create_graph_builder()
    builder.begin_building()
    with mlbackends.cuda.on_stream(builder.stream):
        devices.call("cuStreamSynchronize", 99)
        report(error_of(lambda: attention(q, k, v, mask, enable_gqa=True)))
        devices.call("cuStreamSynchronize", 98)
    builder.end_building()
""",
        FAKE_KERNELS="/nothing",
    )
    message = "a result allocated inside a CUDA graph would allow one launch only"
    assert output.values == [["CudaUnavailable", message]]
    first, last = (output.log.index(f"cuStreamSynchronize {n} 0") for n in (99, 98))
    assert output.log[first + 1 : last] == []


def test_attention_with_torchs_tensors_is_captured_in_a_graph(on_fake_cuda: OnFakeCuda) -> None:
    """In the graph the host does nothing but launch; torch allocates. A stand-in for torch's tensors."""
    output = on_fake_cuda(
        ATTENTION
        + """
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from cuda.core import Device
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device as Place
from mlbackends.sdpa.dispatch import backends
from mlbackends_kernels.cuda import devices
(backend,) = [each for each in backends() if each.name == "efficient_cuda"]
torch = sys.modules["torch"] = ModuleType("torch")
class Tensor:
    dtype, device = "torch.float16", SimpleNamespace(type="cuda", index=0)
    def __init__(self, *shape): self.shape, self.held = shape, on_device(np.zeros(shape, "f2"))
    def data_ptr(self): return self.held.pointer
    def stride(self): return self.held.strides
    def record_stream(self, stream): pass
    def new_empty(self, shape, dtype): return made[shape]
stream = Device(0).create_stream()
torch.Tensor, torch.float16 = Tensor, "torch.float16"
torch.cuda = SimpleNamespace(
    current_stream=lambda device: SimpleNamespace(cuda_stream=handle),
    default_stream=lambda index: None, ExternalStream=lambda *of: None,
    device=lambda index: nullcontext(), stream=lambda chosen: nullcontext())
handle = int(stream.handle)
made = {(1, 2, 64, 32): Tensor(1, 2, 64, 32)}
tensors = [Tensor(1, 2, 64, 32) for _ in range(3)]
spec = TensorSpec((1, 2, 64, 32), "float16")
problem = AttentionProblem(query=spec, key=spec, value=spec, device=Place("cuda", 0, capability="9.0"))
backend.run(problem, *tensors)  # compiles
builder = stream.create_graph_builder()
builder.begin_building()
handle = int(builder.stream.handle)
devices.call("cuStreamSynchronize", 99)
backend.run(problem, *tensors)
devices.call("cuStreamSynchronize", 98)
builder.end_building()
report(handle)
""",
        FAKE_KERNELS="/nothing",
    )
    (stream,) = output.values
    first, last = (output.log.index(f"cuStreamSynchronize {n} 0") for n in (99, 98))
    (launched,) = output.log[first + 1 : last]
    assert launched.startswith("launch attention_forward") and f"stream {stream}" in launched


def test_attention_without_memory_is_an_error_and_goes_on_after_it(
    on_fake_cuda: OnFakeCuda,
) -> None:
    output = on_fake_cuda(
        ATTENTION
        + """
def both(): return attend(SDPBackend.EFFICIENT_ATTENTION)
for _ in range(3): both()
held = on_device(np.zeros(900000, bool))
kind, message = error_of(both)
report([kind, message])
del held
report(list(both()[0].shape))
""",
        FAKE_KERNELS="/nothing",
        FAKE_MEMORY="1000000",
    )
    failure = "allocating 26880 bytes on cuda:0 returned CUDA_ERROR_OUT_OF_MEMORY"
    assert output.values == [["CudaOutOfMemory", failure], [2, 4, 70, 24]]


def test_a_launch_that_is_refused_is_an_error_with_the_kernels_name(
    on_fake_cuda: OnFakeCuda,
) -> None:
    program = ATTENTION + "report(error_of(lambda: attend(SDPBackend.EFFICIENT_ATTENTION)))\n"
    output = on_fake_cuda(program, FAKE_LAUNCH="700")
    said = "the launch of attention_forward returned 700 (CUDA_ERROR_ILLEGAL_ADDRESS)"
    assert output.values == [["CudaError", said]]


def test_more_shared_memory_than_usual_is_requested_once(on_fake_cuda: OnFakeCuda) -> None:
    program = ATTENTION.replace("32)", "128)").replace("(32, 24)", "(128, 128)") + (
        "for _ in range(2): attend(SDPBackend.EFFICIENT_ATTENTION)\n"
    )
    output = on_fake_cuda(program)
    tile = tile_of("forward", "Float16", (128, 128), (9, 0))
    limit = f"cuKernelSetAttribute 8 {tile.shared_bytes('forward')}"
    assert output.lines("cuKernelSetAttribute") == [limit]
    assert len(output.lines("launch attention_forward")) == 2

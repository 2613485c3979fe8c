"""Streams and memory: work follows the caller's stream, the host waits for nothing, graphs are captured."""

from __future__ import annotations

from typing import Any

OTHER = """
from mlbackends_kernels.cuda import devices, streams
from mlbackends.sdpa import SDPBackend
from mlbackends_kernels import attention_cuda
attention_cuda.missing_parts = lambda *_, **__: ()
def ones(device=0): return on_device(np.ones((1, 1, 4, 8), "f2"), device)
def attend(*tensors):
    with mlbackends.sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return mlbackends.scaled_dot_product_attention(*tensors)
"""
GRAPH = (
    OTHER
    + """
from cuda.core import Device
device = Device(0)
device.set_current()
stream = device.create_stream()
builder = stream.create_graph_builder()
"""
)


def test_all_work_is_on_the_stream_that_was_chosen(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        OTHER
        + """
class Stream:
    def __cuda_stream__(self): return 0, 77
with mlbackends.cuda.on_stream(Stream()):
    a = ones()
    result = attend(a, a, a)
    report([a.stream, result.stream, result.__cuda_array_interface__["stream"]])
    del a, result
"""
    )
    assert output.values == [[77, 77, 77]]
    (launch,) = output.lines("launch")
    assert launch.endswith(" stream 77 0")
    assert {line.split()[2] for line in output.lines("cuMem")} == {"77"}
    assert not output.lines("cuStreamSynchronize")
    assert not output.lines("cuCtxSynchronize")


def test_an_array_of_another_stream_is_waited_for_on_the_device(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        OTHER
        + """
a = ones()
with mlbackends.cuda.on_stream(78):
    b = attend(a, a, a)
del a
report(b.stream)
"""
    )
    assert output.values == [78]
    # 78 waits for what made the array; and the array is given back after 78 has read it.
    waits = [int(line.split()[1]) for line in output.lines("cuStreamWaitEvent")]
    records = [int(line.split()[2]) for line in output.lines("cuEventRecord")]
    assert (records[0], waits[0]) == (1, 78)
    assert (records[-1], waits[-1]) == (78, 1)
    assert not output.lines("cuStreamSynchronize")


def test_what_is_no_stream_is_refused(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
def choose():
    with mlbackends.cuda.on_stream("7"):
        pass
report(error_of(choose))
"""
    )
    assert output.values == [["TypeError", "str is not a stream: it has no __cuda_stream__"]]


def test_memory_from_before_a_capture_is_given_back_after_it(on_fake_cuda: Any) -> None:
    """On a captured stream CUDA frees only what a graph allocated."""
    output = on_fake_cuda(
        GRAPH
        + """
old = ones()
with mlbackends.cuda.on_stream(builder.stream):
    older = ones()
    attend(older, older, older)  # compiles
devices.call("cuStreamSynchronize", 99)
from mlbackends_kernels.cuda.device_array import empty
builder.begin_building()
with mlbackends.cuda.on_stream(builder.stream):
    result = empty((4,), "float32", 0)
    del old, older
builder.end_building()
devices.call("cuStreamSynchronize", 98)
report(int(builder.stream.handle))
later = ones()
del result
"""
    )
    (stream,) = output.values
    first, last = (output.log.index(f"cuStreamSynchronize {n} 0") for n in (99, 98))
    freed = [line.split()[2] for line in output.log[first:last] if line.startswith("cuMemFreeAsync")]
    assert freed == []
    freed = [line.split()[2] for line in output.log[last:] if line.startswith("cuMemFreeAsync")]
    assert sorted(freed[:2]) == ["1", str(stream)] and freed[2] == str(stream)
    assert not output.lines("refused")


def test_a_thread_without_a_context_gives_memory_back_at_once(on_fake_cuda: Any) -> None:
    """A default stream belongs to a context; without one it is not known whether it is captured."""
    output = on_fake_cuda(
        OTHER
        + """
from threading import Thread
held = [ones() for _ in range(2)]
thread = Thread(target=held.clear)
thread.start()
thread.join()
report(devices.call("cuDeviceGetCount"))
"""
    )
    assert output.values == [1]
    assert len(output.lines("cuMemFreeAsync")) == 2


def test_torch_records_another_stream_that_reads_a_tensor(on_fake_cuda: Any) -> None:
    """Else its memory is another tensor's, on torch's own stream, as soon as the caller drops it."""
    output = on_fake_cuda(
        OTHER
        + """
import sys
from types import ModuleType, SimpleNamespace
from mlbackends_kernels.cuda.device_array import as_device_array
torch = sys.modules["torch"] = ModuleType("torch")
class Tensor:
    dtype, shape, device = "torch.float32", (2,), SimpleNamespace(type="cuda", index=0)
    def data_ptr(self): return 4096
    def stride(self): return (1,)
    def record_stream(self, stream): report(stream)
torch.Tensor = Tensor
torch.cuda = SimpleNamespace(
    current_stream=lambda device: SimpleNamespace(cuda_stream=55),
    default_stream=lambda index: ["default", index], ExternalStream=lambda *of: list(of))
for handle in (55, 56, 1):
    with mlbackends.cuda.on_stream(handle):
        report(as_device_array(Tensor()).stream)
"""
    )
    assert output.values == [55, [56, 0], 56, ["default", 0], 1]


def test_arrays_of_cupy_are_read_on_its_stream_of_their_device(on_fake_cuda: Any) -> None:
    """A stand-in with what we ask of CuPy, whose streams are those of each device."""
    output = on_fake_cuda(
        OTHER
        + """
import sys
from types import ModuleType, SimpleNamespace
from mlbackends_kernels.cuda.device_array import as_device_array
cupy = sys.modules["cupy"] = ModuleType("cupy")
class Array:
    def __init__(self, held): self.held, self.device = held, SimpleNamespace(id=held.device)
    def __dlpack_device__(self): return self.held.__dlpack_device__()
    def __dlpack__(self, **options): return self.held.__dlpack__(**options)
Array.__module__ = "cupy._core.core"
cupy.cuda = SimpleNamespace(get_current_stream=lambda index: SimpleNamespace(ptr=(55, 66)[index]))
with mlbackends.cuda.on_stream(66):
    held = on_device(np.arange(4, dtype="f4").reshape(2, 2), 1)
taken = as_device_array(Array(held))
report([taken.stream, taken.device, taken.pointer == held.pointer, taken.strides])
with mlbackends.cuda.on_stream(77):
    report(as_device_array(Array(held)).stream)
""",
        FAKE_GPUS="2",
    )
    assert output.values == [[66, 1, True, [2, 1]], 77]
    # Only on the chosen stream is there something to wait for.
    assert [line.split()[1] for line in output.lines("cuStreamWaitEvent")] == ["77"]


def test_a_device_without_pools_has_memory_too(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
a = on_device(np.ones((8, 8), "f4"))
report(float(a.numpy()[0, 0]))
del a
report("gone")
""",
        FAKE_POOLS="0",
    )
    assert output.values == [1.0, "gone"]
    assert output.lines("cuMemAlloc ") and not output.lines("cuMemAllocFromPool")
    assert output.lines("cuMemFreeAsync") == ["cuMemFreeAsync 0 0"]

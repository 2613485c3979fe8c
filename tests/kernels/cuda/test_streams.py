"""Streams and memory: work follows the caller's stream, the host waits for nothing, graphs are captured."""

from __future__ import annotations

from typing import Any

import pytest

OTHER = "\nfrom mlbackends_kernels.cuda import devices, streams\n"
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


@pytest.mark.parametrize("library", ["cublas", "cublaslt"])
def test_all_work_is_on_the_stream_that_was_chosen(on_fake_cuda: Any, library: str) -> None:
    told = on_fake_cuda(
        OTHER
        + f"""
from mlbackends import fft
mlbackends.cuda.preferred_blas_library("{library}")
class Stream:
    def __cuda_stream__(self): return 0, 77
with mlbackends.cuda.on_stream(Stream()):
    a = on_device(rng.standard_normal((4, 6)).astype("f4"))
    product = mlbackends.matmul(a, a.viewed((6, 2), (1, 0)))
    total = mlbackends.einsum("ij->j", a)
    turned = fft.ifft(a.permuted((1, 0)))
    tell([each.stream for each in (a, product, total, turned)])
    interface = product.__cuda_array_interface__
    tell(interface["stream"])
    del a, product, total, turned
"""
    )
    assert told.values == [[77] * 4, 77]
    named = ("cuMem", "launch", "cublasSetStream", "cufftSetStream", "matmul")
    on_streams = [line for line in told.log if line.startswith(named)]
    assert len(on_streams) > 12
    streams = [
        line.split()[-1] if "Stream" in line else line.split("stream")[-1].strip("= ").split()[0]
        for line in on_streams
        if "cuMem" not in line
    ]
    assert set(streams) == {"77"}
    assert {line.split()[2] for line in told.lines("cuMem")} == {"77"}
    assert not told.lines("cuStreamSynchronize")
    assert not told.lines("cuCtxSynchronize")


def test_an_array_of_another_stream_is_waited_for_on_the_device(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        OTHER
        + """
a = on_device(np.ones((2, 2), "f4"))
with mlbackends.cuda.on_stream(78):
    b = mlbackends.matmul(a, a)
del a
tell(b.stream)
"""
    )
    assert told.values == [78]
    # 78 waits for what made the array; and the array is given back after 78 has read it.
    waits = [int(line.split()[1]) for line in told.lines("cuStreamWaitEvent")]
    records = [int(line.split()[2]) for line in told.lines("cuEventRecord")]
    assert (records[0], waits[0]) == (1, 78)
    assert (records[-1], waits[-1]) == (78, 1)
    assert not told.lines("cuStreamSynchronize")


def test_what_is_no_stream_is_refused(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
def choose():
    with mlbackends.cuda.on_stream("7"):
        pass
tell(error_of(choose))
"""
    )
    assert told.values == [["TypeError", "str is no stream: it has no __cuda_stream__"]]


def test_a_graph_can_be_captured(on_fake_cuda: Any) -> None:
    """Memory is the graph's; nothing that cannot be captured is called, no order with other streams made."""
    told = on_fake_cuda(
        GRAPH
        + """
a = on_device(np.ones((2, 2), "f4"))
mlbackends.matmul(a, a)
devices.call("cuStreamSynchronize", 99)
builder.begin_building()
with mlbackends.cuda.on_stream(builder.stream):
    result = mlbackends.matmul(a, a)
builder.end_building()
devices.call("cuStreamSynchronize", 98)
tell(int(builder.stream.handle))
"""
    )
    (stream,) = told.values
    first, last = (told.log.index(f"cuStreamSynchronize {n} 0") for n in (99, 98))
    during = told.log[first + 1 : last]
    assert f"cuMemAllocFromPoolAsync 16 {stream}" in during
    assert any(line.startswith("gemm ") for line in during)
    assert not [line for line in during if "Synchronize" in line or "Event" in line]


def test_memory_from_before_a_capture_is_given_back_after_it(on_fake_cuda: Any) -> None:
    """On a captured stream CUDA frees only what a graph allocated."""
    told = on_fake_cuda(
        GRAPH
        + """
old = on_device(np.ones((2, 2), "f4"))
with mlbackends.cuda.on_stream(builder.stream):
    older = on_device(np.ones((2, 2), "f4"))
devices.call("cuStreamSynchronize", 99)
builder.begin_building()
with mlbackends.cuda.on_stream(builder.stream):
    result = mlbackends.matmul(older, older)
    del old, older
builder.end_building()
devices.call("cuStreamSynchronize", 98)
tell(int(builder.stream.handle))
later = on_device(np.ones((2, 2), "f4"))
del result
"""
    )
    (stream,) = told.values
    first, last = (told.log.index(f"cuStreamSynchronize {n} 0") for n in (99, 98))
    freed = [line.split()[2] for line in told.log[first:last] if line.startswith("cuMemFreeAsync")]
    assert freed == [str(stream)], "the product's workspace, which is the graph's"
    freed = [line.split()[2] for line in told.log[last:] if line.startswith("cuMemFreeAsync")]
    assert sorted(freed[:2]) == ["1", str(stream)] and freed[2] == str(stream)
    assert not told.lines("refused")


def test_a_thread_without_a_context_gives_memory_back_at_once(on_fake_cuda: Any) -> None:
    """A default stream is that of a context, and cannot tell there whether it is captured."""
    told = on_fake_cuda(
        OTHER
        + """
from threading import Thread
held = [on_device(np.ones(2, "f4")) for _ in range(2)]
thread = Thread(target=held.clear)
thread.start()
thread.join()
tell(devices.call("cuDeviceGetCount"))
"""
    )
    assert told.values == [1]
    assert len(told.lines("cuMemFreeAsync")) == 2


def test_a_sum_in_a_graph_reads_nothing_of_the_host(on_fake_cuda: Any) -> None:
    """What the host had at the capture is gone when the graph is launched."""
    told = on_fake_cuda(
        OTHER
        + """
from cuda.core import Device
Device(0).set_current()
builder = Device(0).create_stream().create_graph_builder()
arrays = [on_device(np.ones((3, 5), dtype)) for dtype in ("f2", "f4", "f8", "c8", "c16")]
arrays.append(on_device(np.full((3, 5), 0x3F80, "u2").view("f2")).as_type("bfloat16"))
builder.begin_building()
devices.call("cuStreamSynchronize", 99)
with mlbackends.cuda.on_stream(builder.stream):
    sums = [mlbackends.einsum("ij->j", each) for each in arrays]
devices.call("cuStreamSynchronize", 98)
builder.end_building()
tell([[each.dtype, set(each.numpy().tolist()) == {3}] for each in sums])
"""
    )
    names = ("float16", "float32", "float64", "complex64", "complex128", "bfloat16")
    assert told.values == [[[name, True] for name in names]]
    first, last = (told.log.index(f"cuStreamSynchronize {n} 0") for n in (99, 98))
    assert not [line for line in told.log[first:last] if "Memcpy" in line]


def test_arrays_of_torch_are_computed_on_its_stream(on_fake_cuda: Any) -> None:
    """A stand-in with what we ask of it: device, stream and memory are its own."""
    told = on_fake_cuda(
        OTHER
        + """
import contextlib, sys
from types import ModuleType, SimpleNamespace
from mlbackends_kernels.cuda.device_array import as_device_array
class Scope(contextlib.nullcontext):
    def __init__(self, handle=0, *rest): super().__init__(); self.ptr = self.cuda_stream = handle
torch = sys.modules["torch"] = ModuleType("torch")
torch.float32, torch.no_grad = "torch.float32", Scope
class Tensor:
    is_cuda, dtype, layout, requires_grad = True, "torch.float32", "torch.strided", False
    device = SimpleNamespace(type="cuda", index=0)
    def __init__(self, held): self.held, self.shape = held, held.shape
    def data_ptr(self): return self.held.pointer
    def stride(self): return self.held.strides
    def storage_offset(self): return 0
    def new_empty(self, shape, dtype):
        tell(["torch allocates", list(shape)])
        from mlbackends_kernels.cuda.device_array import empty
        return Tensor(empty(shape, "float32", 0, 55))
Tensor.__module__ = "torch"
torch.Tensor = Tensor
torch.cuda = SimpleNamespace(
    current_stream=lambda device: SimpleNamespace(cuda_stream=55), device=Scope, stream=Scope,
    default_stream=Scope, ExternalStream=Scope)
with mlbackends.cuda.on_stream(55):
    held = on_device(np.arange(4, dtype="f4").reshape(2, 2))
taken = as_device_array(Tensor(held))
tell([taken.stream, taken.pointer == held.pointer])
from mlbackends_kernels.cuda.products import multiply
result = multiply(taken, taken, (2, 2))
tell([type(result.owner).__name__, result.stream])
tell(result.numpy().tolist())
"""
    )
    assert told.values == [
        [55, True],
        ["torch allocates", [2, 2]],
        ["Tensor", 55],
        [[2.0, 3.0], [6.0, 11.0]],
    ]
    assert told.lines("cublasSetStream") == ["cublasSetStream 55"]
    assert not told.lines("cuStreamWaitEvent")


def test_torch_is_told_which_other_stream_reads_a_tensor(on_fake_cuda: Any) -> None:
    """Else its memory is another tensor's, on torch's own stream, as soon as the caller drops it."""
    told = on_fake_cuda(
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
    def record_stream(self, stream): tell(stream)
torch.Tensor = Tensor
torch.cuda = SimpleNamespace(
    current_stream=lambda device: SimpleNamespace(cuda_stream=55),
    default_stream=lambda index: ["default", index], ExternalStream=lambda *of: list(of))
for handle in (55, 56, 1):
    with mlbackends.cuda.on_stream(handle):
        tell(as_device_array(Tensor()).stream)
"""
    )
    assert told.values == [55, [56, 0], 56, ["default", 0], 1]


def test_arrays_of_cupy_are_computed_on_its_stream_of_their_device(on_fake_cuda: Any) -> None:
    """A stand-in with what we ask of CuPy, whose streams are those of each device."""
    told = on_fake_cuda(
        OTHER
        + """
import contextlib, sys
from types import ModuleType, SimpleNamespace
from mlbackends_kernels.cuda.device_array import as_device_array, empty
from mlbackends_kernels.cuda.products import multiply
cupy = sys.modules["cupy"] = ModuleType("cupy")
class Scope(contextlib.nullcontext):
    def __init__(self, handle, *rest): super().__init__(); self.ptr = handle
Scope.null = Scope(0)
class Array:
    def __init__(self, held, steps=None):
        self.held, self.shape, self.dtype = held, held.shape, np.dtype(held.dtype)
        self.strides = steps or tuple(step * held.itemsize for step in held.strides)
        self.data, self.device = SimpleNamespace(ptr=held.pointer), SimpleNamespace(id=held.device)
    def __dlpack_device__(self): return 2, self.device.id
    def __dlpack__(self, **options): raise BufferError("it is read by what it is")
Array.__module__ = "cupy._core.core"
def cupys_empty(shape, dtype):
    tell(["CuPy allocates", list(shape), devices.current_device()])
    return Array(empty(shape, dtype, 1, 66))
cupy.empty, cupy.cuda = cupys_empty, SimpleNamespace(
    get_current_stream=lambda index: Scope((55, 66)[index]), Stream=Scope, ExternalStream=Scope,
    Device=devices.on_device)
with mlbackends.cuda.on_stream(66):
    held = on_device(np.arange(4, dtype="f4").reshape(2, 2), 1)
taken = as_device_array(Array(held))
tell([taken.stream, taken.device, taken.pointer == held.pointer, taken.strides])
result = multiply(taken, taken, (2, 2))
tell([type(result.owner).__name__, result.stream])
tell(result.numpy().tolist())
tell(error_of(lambda: as_device_array(Array(held, (8, 3)))))
with mlbackends.cuda.on_stream(77):
    tell(as_device_array(Array(held)).stream)
""",
        FAKE_GPUS="2",
    )
    assert told.values == [
        [66, 1, True, [2, 1]],
        ["CuPy allocates", [2, 2], 1],
        ["Array", 66],
        [[2.0, 3.0], [6.0, 11.0]],
        ["TypeError", "strides of (8, 3) bytes are no multiples of 4"],
        77,
    ]
    assert told.lines("cublasSetStream") == ["cublasSetStream 66"]
    # Only on the chosen stream is there something to wait for.
    assert [line.split()[1] for line in told.lines("cuStreamWaitEvent")] == ["77"]


def test_each_device_has_its_own_memory_and_statistics(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        OTHER
        + """
a = on_device(np.ones(64, "f4"), 1)
b = mlbackends.matmul(a, a)
stats = [mlbackends.cuda.memory_stats(each) for each in (0, "cuda:1")]
tell([each["allocated_bytes.all.current"] for each in stats])
tell([b.device, devices.current_device()])
tell(stats[1]["reserved_bytes.all.current"] > 0)
tell("reserved_bytes.all.current" in stats[0])
del a, b
tell(mlbackends.cuda.memory_stats(1)["allocated_bytes.all.current"])
tell([error_of(lambda: mlbackends.cuda.memory_stats(each)) for each in (2, -1)])
tell(mlbackends.cuda.memory_stats("cuda") == mlbackends.cuda.memory_stats(0))
""",
        FAKE_GPUS="2",
    )
    assert told.values == [
        [0, 260],
        [1, 0],
        True,
        False,
        0,
        [["RuntimeError", f"expected 0 <= device index < 2, but got {index}"] for index in (2, -1)],
        True,
    ]
    assert {line.split()[2] for line in told.lines("cuMemAlloc")} == {"1"}  # the legacy stream


def test_without_a_driver_statistics_say_why_there_are_none(on_fake_cuda: Any) -> None:
    told = on_fake_cuda("tell(error_of(lambda: mlbackends.cuda.memory_stats(0)))", FAKE_INIT="100")

    assert told.values == [["CudaUnavailable", "cuInit returned 100 (CUDA_ERROR_NO_DEVICE)"]]


def test_after_an_error_of_memory_everything_works(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
mlbackends.cuda.cublas_workspace_size(0)
a = on_device(np.ones((64, 64), "f4"))
wide = a.viewed((64, 64, 64), (0, 64, 1))
tell(error_of(lambda: mlbackends.matmul(wide, a))[0])
tell(float(mlbackends.matmul(a, a).numpy()[0, 0]))
stats = mlbackends.cuda.memory_stats()
tell([stats["num_ooms"], stats["allocated_bytes.all.current"], stats["allocation.all.current"]])
""",
        FAKE_MEMORY="65536",
    )
    assert told.values == ["CudaOutOfMemory", 64.0, [1, 16384, 1]]


def test_a_device_without_pools_has_memory_too(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
a = on_device(np.ones((8, 8), "f4"))
tell(float(mlbackends.matmul(a, a).numpy()[0, 0]))
del a
stats = mlbackends.cuda.memory_stats()
tell([stats["allocation.all.current"], "reserved_bytes.all.current" in stats])
""",
        FAKE_POOLS="0",
    )
    assert told.values == [8.0, [0, False]]
    assert told.lines("cuMemAlloc ") and not told.lines("cuMemAllocFromPool")


def test_a_launch_that_is_refused_is_an_error_with_the_kernel_s_name(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda.copies import packed
array = on_device(np.ones((4, 4), "f4")).permuted((1, 0))
tell(error_of(lambda: packed(array)))
""",
        FAKE_LAUNCH="700",
    )
    said = "the launch of copy_4 returned CUDA_ERROR_ILLEGAL_ADDRESS"
    assert told.values == [["CudaError", said]]


def test_a_source_that_cannot_be_compiled_is_told(on_fake_cuda: Any) -> None:
    told = on_fake_cuda(
        """
from mlbackends_kernels.cuda.copies import packed
tell(error_of(lambda: packed(on_device(np.ones((4, 4), "f4")).permuted((1, 0)))))
""",
        FAKE_NVRTC="6",
    )
    kind, said = told.values[0]
    assert kind == "CompilationFailed"
    assert said.startswith("copies.cu: nvrtcCompileProgram returned NVRTC_ERROR_COMPILATION for")

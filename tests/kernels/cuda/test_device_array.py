"""Arrays in device memory: in and out of other libraries, and given back in the end."""

from __future__ import annotations

from typing import Any

import pytest


def test_numbers_come_back_as_they_went(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
for dtype in ("?", "i4", "f2", "f4", "f8"):
    for shape in ((), (0,), (3,), (2, 0, 3), (2, 3, 4)):
        a = (rng.standard_normal(shape) * 10).astype(dtype)
        array = on_device(a)
        assert array.numpy().dtype == a.dtype and np.array_equal(array.numpy(), a), (dtype, shape)
        assert array.nbytes == a.nbytes and array.ndim == a.ndim
a = rng.standard_normal((3, 4, 5, 2)).astype("f4")
array, size = on_device(a), a.itemsize
for view in (a.transpose(3, 1, 0, 2), a[::2, 1:3, ::3], a[:, :, 1], a[:0], a[::-1, :, ::-2],
             np.broadcast_to(a[:, :1], (3, 6, 5, 2))):
    offset = (view.__array_interface__["data"][0] - a.__array_interface__["data"][0]) // size
    got = array.viewed(view.shape, [step // size for step in view.strides], offset).numpy()
    assert np.array_equal(got, view), (view.shape, view.strides)
report(error_of(lambda: on_device(np.ones(3, "i2"))))
"""
    )
    assert output.values[0][0] == "TypeError"
    assert "int16 are not one of bool, int32, float16, bfloat16" in output.values[0][1]


def test_memory_is_given_back_when_nothing_needs_it_any_more(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
a = on_device(np.ones((2, 3), "f4"))
view = a.viewed((3, 2), (1, 3))
del a
report(view.numpy().tolist())
del view
report("gone")
"""
    )
    assert output.values[0] == [[1.0, 1.0]] * 3
    frees = [line.split()[1] for line in output.lines("cuMemFreeAsync")]
    assert frees[-1] == "0"  # none is live


def test_out_of_memory_is_an_error_that_leaves_nothing_behind(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
from mlbackends_kernels.cuda.devices import CudaOutOfMemory
kept = on_device(np.ones(128, "f8"))
report(error_of(lambda: on_device(np.ones(1 << 10, "f8"))))
report(issubclass(CudaOutOfMemory, MemoryError))
report(float(on_device(np.ones(128, "f8")).numpy()[-1]))
""",
        FAKE_MEMORY="4096",
    )
    failure = "allocating 8192 bytes on cuda:0 returned CUDA_ERROR_OUT_OF_MEMORY"
    assert output.values == [["CudaOutOfMemory", failure], True, 1]


def test_the_array_interface_goes_both_ways(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
from mlbackends_kernels.cuda.device_array import as_device_array
a = rng.standard_normal((3, 4)).astype("f4")
array = on_device(a)
output = dict(array.__cuda_array_interface__)
assert output["data"][0] == array.pointer
report({key: output[key] for key in ("shape", "typestr", "strides", "version", "stream")})
turned = array.viewed((4, 3), (1, 4))
class Theirs:
    __cuda_array_interface__ = turned.__cuda_array_interface__
again = as_device_array(Theirs())
report([again.shape, again.strides, again.device, bool(np.array_equal(again.numpy(), a.T))])
class Masked:
    __cuda_array_interface__ = {**output, "mask": array}
class Odd:
    __cuda_array_interface__ = {**output, "strides": (16, 3)}
class Busy:
    __cuda_array_interface__ = {**output, "stream": 7}
class Either:
    __cuda_array_interface__ = {**output, "stream": 0}
report(error_of(lambda: as_device_array(Masked())))
report(error_of(lambda: as_device_array(Odd())))
as_device_array(Busy())
report([again.stream, as_device_array(Busy()).stream])
report(error_of(lambda: as_device_array(Either())))
"""
    )
    assert output.values[0] == {
        "shape": [3, 4],
        "typestr": "<f4",
        "strides": [16, 4],
        "version": 3,
        "stream": 1,
    }
    assert output.values[1] == [[4, 3], [1, 4], 0, True]
    assert output.values[2] == ["TypeError", "an array with a mask is not supported"]
    assert output.values[3][0] == "TypeError"
    assert output.values[4] == [1, 1]
    assert output.values[5][0] == "TypeError" and "stream is 0" in output.values[5][1]
    # Our stream waits for theirs on the device, and the host for nothing but the copies back.
    assert [line.split()[2] for line in output.lines("cuEventRecord")] == ["7", "7"]
    assert {line.split()[1] for line in output.lines("cuStreamWaitEvent")} == {"1"}
    assert len(output.lines("cuStreamSynchronize")) == 1


def test_memory_of_the_host_is_refused_and_a_device_s_is_recognised(on_fake_cuda: Any) -> None:
    program = """
from mlbackends_kernels.cuda.device_array import as_device_array
class Theirs:
    __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (4096, False), "version": 3}
report(error_of(lambda: report(as_device_array(Theirs()).device)))
"""
    host = on_fake_cuda(program, FAKE_POINTER_KIND="1")
    assert host.values == [["CudaUnavailable", "the memory at 0x1000 is not a CUDA device's"]]
    second = on_fake_cuda(program, FAKE_GPUS="2", FAKE_POINTER_DEVICE="1")
    assert second.values == [1, None]


def test_dlpack_shares_memory_and_holds_it_until_the_consumer_is_done(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
import gc
from mlbackends_kernels.cuda import devices
from mlbackends_kernels.cuda.device_array import as_device_array
a = rng.standard_normal((3, 4)).astype("f4")
array = on_device(a).viewed((4, 3), (1, 4))
class Theirs:
    def __init__(self, of): self.of, self.streams = of, []
    def __dlpack_device__(self): return self.of.__dlpack_device__()
    def __dlpack__(self, *, stream=None, **more):
        self.streams.append(stream)
        return self.of.__dlpack__(stream=stream, **more)
theirs = Theirs(array)
again = as_device_array(theirs)
report([again.pointer == array.pointer, again.shape, again.strides, again.dtype, theirs.streams])
del array, theirs
gc.collect()
report(bool(np.array_equal(again.numpy(), a.T)))
devices.call("cuStreamSynchronize", 99)
del again
gc.collect()
"""
    )
    assert output.values == [[True, [4, 3], [1, 4], "float32", [1]], True]
    before = output.log.index("cuStreamSynchronize 99 0")
    assert not [line for line in output.log[:before] if line.startswith("cuMemFree")]
    assert output.log[-1].startswith("cuMemFreeAsync 0 ")


def test_a_consumer_that_takes_the_capsule_holds_the_memory(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
import gc
from cuda.core.utils import StridedMemoryView
from mlbackends_kernels.cuda import devices
array = on_device(np.ones(5, "f4"))
taken = StridedMemoryView.from_dlpack(array, stream_ptr=-1)
untaken = array.__dlpack__()
del array, untaken
gc.collect()
devices.call("cuStreamSynchronize", 99)
del taken
gc.collect()
"""
    )
    before = output.log.index("cuStreamSynchronize 99 0")
    assert not [line for line in output.log[:before] if line.startswith("cuMemFree")]
    assert output.log[-1].startswith("cuMemFreeAsync 0 ")


@pytest.mark.parametrize(
    ("arguments", "waits", "error"),
    [
        ("", 0, None),
        ("stream=1", 0, None),
        ("stream=-1", 0, None),
        ("stream=2", 1, None),
        ("stream=99, max_version=(1, 0)", 1, None),
        ("dl_device=(2, 0)", 0, None),
        ("dl_device=(1, 0)", 0, "BufferError"),
        ("copy=True", 0, "BufferError"),
        ("copy=False", 0, None),
    ],
)
def test_a_consumer_on_another_stream_gets_finished_memory(
    on_fake_cuda: Any, arguments: str, waits: int, error: str | None
) -> None:
    output = on_fake_cuda(
        f"""
array = on_device(np.ones(5, "f4"))
failed = error_of(lambda: array.__dlpack__({arguments}))
del array
report(failed and failed[0])
"""
    )
    assert output.values == [error]
    assert len(output.lines("cuStreamWaitEvent")) == waits * 2  # the consumer's, and ours to give it back
    assert not output.lines("cuStreamSynchronize")


def test_bfloat16_goes_by_dlpack_alone(on_fake_cuda: Any) -> None:
    output = on_fake_cuda(
        """
patterns = np.array([[0x3F80, 0x4000], [0xC040, 0x7F80]], np.uint16)
raw = on_device(patterns.view("f2"))
array = raw.as_type("bfloat16")
report(error_of(lambda: array.__cuda_array_interface__))
report(array.numpy().tolist())
class Theirs:
    __dlpack_device__, __dlpack__ = array.__dlpack_device__, array.__dlpack__
from mlbackends_kernels.cuda.device_array import as_device_array
again = as_device_array(Theirs())
report([again.dtype, again.numpy().tolist()])
"""
    )
    assert output.values[0] == ["AttributeError", "the array interface has no bfloat16; use DLPack"]
    assert output.values[1] == [[1.0, 2.0], [-3.0, float("inf")]]
    assert output.values[2] == ["bfloat16", output.values[1]]


def test_an_array_says_what_it_is(on_fake_cuda: Any) -> None:
    output = on_fake_cuda("report(repr(on_device(np.ones((2, 3)), 1)))", FAKE_GPUS="2")
    assert output.values == ["DeviceArray(shape=(2, 3), dtype=float64, device='cuda:1')"]

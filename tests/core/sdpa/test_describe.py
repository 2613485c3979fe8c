"""Anybody's tensor is understood by what it says of itself."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.model.problem import TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa.describe import describe, device_of, is_tensor


def view(tensor: Any) -> memoryview:
    return memoryview(tensor)


class Foreign:
    """What a tensor of a library that we have never heard of offers."""

    def __init__(self, dtype: str = "float16", device: tuple[int, int] = (1, 0)) -> None:
        self.shape = (2, 3)
        self.dtype = dtype
        self._device = device

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("nobody wants the values")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


@given(st.permutations(range(3)), st.integers(1, 2))
def test_a_numpy_array_tells_its_layout(order: list[int], step: int) -> None:
    tensor = np.zeros((4, 6, 8), "float32").transpose(order)[::step]

    told = describe(tensor)

    assert told.shape == tensor.shape
    assert told.strides == tuple(stride // 4 for stride in tensor.strides)
    assert (told.dtype, told.device, told.requires_grad) == ("float32", "cpu", False)


def test_elements_among_others_do_not_lie_side_by_side() -> None:
    record = np.dtype([("number", "<f4"), ("letters", "S2")])

    assert describe(np.zeros((2, 3), record)["number"]).strides[-1] == 2


@pytest.mark.parametrize(
    ("buffer", "wanted"),
    [
        (view(np.zeros((2, 3), "float32")), TensorSpec((2, 3), "float32", device="cpu")),
        (view(np.zeros((2, 3), "float16")), TensorSpec((2, 3), "float16", device="cpu")),
        (view(np.zeros((3, 2), "bool")).toreadonly(), TensorSpec((3, 2), "bool", device="cpu")),
        (array.array("d", [1.0, 2.0]), TensorSpec((2,), "float64", device="cpu")),
        ((ctypes.c_float * 3 * 2)(), TensorSpec((2, 3), "float32", device="cpu")),
    ],
    ids=("float32", "float16", "bool", "array", "ctypes"),
)
def test_a_buffer_is_a_tensor(buffer: Any, wanted: TensorSpec) -> None:
    assert is_tensor(buffer)
    assert describe(buffer) == wanted


@pytest.mark.parametrize(
    "thing",
    [None, 3, 1.5, "text", b"bytes", bytearray(4), [1.0], np.float32(1), object(), TensorSpec],
)
def test_what_is_no_tensor_is_refused(thing: Any) -> None:
    assert not is_tensor(thing)
    with pytest.raises(TypeError, match="is not a tensor"):
        describe(thing)


#: Under Windows it is float64 itself.
WIDER = [np.zeros(3, "longdouble")] if np.dtype("longdouble").itemsize > 8 else []


@pytest.mark.parametrize(
    "thing", [np.zeros(3, "S4"), np.zeros(3, object), np.zeros(3, "M8[s]"), *WIDER],
    ids=lambda thing: str(thing.dtype),
)  # fmt: skip
def test_elements_that_are_no_numbers_of_ours_are_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match="elements of type"):
        describe(thing)


def test_a_buffer_in_the_other_byte_order_is_refused() -> None:
    with pytest.raises(TypeError, match="elements of the format"):
        describe(view(np.zeros((2, 3), ">f4" if np.little_endian else "<f4")))


@pytest.mark.parametrize(
    ("device", "place", "record"),
    [
        ((1, 0), "cpu", Device("cpu", 0)),
        ((3, 0), "cpu", Device("cpu", 0)),
        ((10, 1), "rocm:1", Device("rocm", 1)),
        ((8, 0), "mps:0", Device("mps", 0)),
        ((14, 2), "xpu:2", Device("xpu", 2)),
    ],
)
def test_a_tensor_that_speaks_dlpack_tells_its_device(
    device: tuple[int, int], place: str, record: Device
) -> None:
    tensor = Foreign(device=device)

    assert describe(tensor) == TensorSpec((2, 3), "float16", device=place)
    assert device_of(tensor, describe(tensor)) == record


def test_a_device_of_no_known_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown DLPack type 77"):
        describe(Foreign(device=(77, 0)))


def test_of_numpys_rows_of_one_element_no_stride_counts() -> None:
    shared = np.broadcast_to(np.ones((2, 1, 3, 1), "float32"), (2, 4, 3, 1))

    assert shared.strides[-1] == 0
    assert describe(shared).strides[-1] == 1

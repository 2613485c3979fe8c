from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.switches import store
from mlbackends_kernels.cuda.device_array import DeviceArray, as_device_array
from mlbackends_kernels.triton import launching

if TYPE_CHECKING:
    from collections.abc import Iterator


def tensor(
    *shape: int, dtype: str = "float16", owner: object = None, stream: int = 1
) -> DeviceArray:
    strides, size = [], 1
    for each in reversed(shape):
        strides.append(size)
        size *= each
    return DeviceArray(4096, shape, tuple(reversed(strides)), dtype, 1, owner, stream)


def test_the_grid_covers_every_row_of_every_product() -> None:
    left, right, result = tensor(5, 300, 64), tensor(5, 64, 200), tensor(5, 300, 200)
    product = launching.product(left, right, result, precision="ieee", capability=(9, 0))
    assert product.grid == (3 * 2 * 5,)


def test_float32_is_multiplied_as_the_switch_says() -> None:
    with store.restored("cuda.matmul.fp32_precision"):
        assert launching.fp32_precision() == "ieee"
        store.write("cuda.matmul.fp32_precision", "tf32")
        assert launching.fp32_precision() == "tf32"


class FakeTensor:
    """As much of a tensor of torch as a launch looks at."""

    shape, dtype, device = (2, 3), "torch.bfloat16", SimpleNamespace(index=1)

    def data_ptr(self) -> int:
        return 4096

    def stride(self) -> tuple[int, int]:
        return 3, 1


class FakeCuda:
    """torch.cuda, which tells what is made current."""

    def __init__(self) -> None:
        self.now: list[str] = []

    @contextlib.contextmanager
    def _during(self, what: str) -> Iterator[None]:
        self.now.append(what)
        yield
        self.now.pop()

    def device(self, index: int) -> contextlib.AbstractContextManager[None]:
        return self._during(f"device {index}")

    def stream(self, stream: str) -> contextlib.AbstractContextManager[None]:
        return self._during(stream)

    def default_stream(self, index: int) -> str:
        return f"default stream of {index}"

    def ExternalStream(self, handle: int, index: int) -> str:  # noqa: N802  torch's name
        return f"stream {handle} of {index}"

    def current_stream(self, device: object) -> SimpleNamespace:
        return SimpleNamespace(cuda_stream=7)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    torch = SimpleNamespace(Tensor=FakeTensor, cuda=fake)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return fake


class Kernel:
    """A kernel that takes note of how it is launched."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda
        self.seen: list[Any] = []

    def __getitem__(self, grid: tuple[int]) -> Any:
        return lambda **given: self.seen.append((grid, list(self.cuda.now), given))


def test_a_tensor_of_torch_is_taken_as_it_is(cuda: FakeCuda) -> None:
    taken = as_device_array(FakeTensor())
    assert (taken.pointer, taken.shape, taken.strides) == (4096, (2, 3), (3, 1))
    assert (taken.dtype, taken.device, taken.data_ptr()) == ("bfloat16", 1, 4096)
    assert taken.stream == 7


def test_tensors_of_torch_are_launched_on_its_current_stream(cuda: FakeCuda) -> None:
    kernel, left = Kernel(cuda), tensor(2, 20, 30, owner=FakeTensor(), stream=7)
    what = launching.product(left, left, left, precision="ieee", capability=(9, 0))
    launching.launch(kernel, what)
    ((grid, current, given),) = kernel.seen
    assert (grid, current) == (what.grid, ["device 1", "stream 7 of 1"])
    assert given["num_warps"] == what.tile.warps
    assert given["left"] is left
    assert cuda.now == []


def test_other_tensors_are_launched_on_the_default_stream_beside_torch(cuda: FakeCuda) -> None:
    kernel, left = Kernel(cuda), tensor(2, 20, 30)
    launching.launch(
        kernel, launching.product(left, left, left, precision="ieee", capability=(9, 0))
    )
    assert kernel.seen[0][1] == ["device 1", "default stream of 1"]

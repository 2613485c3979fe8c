from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.kernels.conftest import OnFakeCuda

LOAD = (
    "from mlbackends.base import registry\n"
    "bmm = registry.load('mlbackends_kernels.operations', 'bmm')\n"
    "left = rng.standard_normal((3, 4, 5)).astype(np.float32)\n"
    "right = rng.standard_normal((3, 5, 6)).astype(np.float32)\n"
)
TYPES = ["float16", "float32", "float64", "int32"]


def test_in_memory_it_is_the_product_of_each_pair(on_fake_cuda: OnFakeCuda) -> None:
    told = on_fake_cuda(
        LOAD + "tell(float(abs(bmm.run(left, right) - left @ right).max()) < 1e-6)\n"
    )
    assert told.values == [True]


def test_where_triton_cannot_run_the_device_uses_cublas(on_fake_cuda: OnFakeCuda) -> None:
    told = on_fake_cuda(
        LOAD + "out = bmm.run(on_device(left), on_device(right)).numpy()\n"
        "tell([list(out.shape), float(abs(out - left @ right).max()) < 1e-5])\n",
        TORCH_DISABLE_NATIVE_JIT="1",
    )
    assert told.values == [[[3, 4, 6], True]]
    assert told.lines("cublas")


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ((3, 4, 5), (3, 4, 5), "do not fit"),
        ((3, 4, 5), (1, 5, 6), "never broadcasts"),
        ((4, 5), (5, 6), "no 3 dimensions"),
        ((2, 3, 4, 5), (3, 5, 6), "no 3 dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(
    on_fake_cuda: OnFakeCuda, left: tuple[int, ...], right: tuple[int, ...], said: str
) -> None:
    program = f"{LOAD}tell(error_of(lambda: bmm.run(np.ones({left}), np.ones({right}))))\n"
    ((name, message),) = on_fake_cuda(program).values
    assert name == "RuntimeError"
    assert said in message


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("capability", ["75", "80", "121", "130"])
def test_triton_serves_its_types_on_its_gpus(
    on_fake_cuda: OnFakeCuda, dtype: str, capability: str
) -> None:
    program = (
        f"{LOAD}"
        "class Array:\n"
        "    def __init__(self, array):\n"
        "        self.kept, self.shape = array, array.shape\n"
        "        self.__cuda_array_interface__ = {**array.__array_interface__, 'stream': None}\n"
        f"tell(bmm.fits_triton(Array(left.astype('{dtype}')), Array(right.astype('{dtype}'))))\n"
    )
    expected = dtype in {"float16", "float32"} and capability in {"80", "121"}
    assert on_fake_cuda(program, FAKE_CAPABILITY=capability).values == [expected]


def test_empty_and_mixed_operands_are_not_for_triton(on_fake_cuda: OnFakeCuda) -> None:
    told = on_fake_cuda(
        LOAD + "a, b = on_device(left), on_device(right)\n"
        "tell(bmm.fits_triton(a, b))\n"
        "tell(bmm.fits_triton(on_device(left[:0]), on_device(right[:0])))\n"
        "tell(bmm.fits_triton(on_device(left.astype('float16')), b))\n",
        FAKE_CAPABILITY="90",
    )
    assert told.values == [True, False, False]


@pytest.mark.slow
def test_the_switch_of_triton_chooses_between_it_and_cublas(on_fake_cuda: OnFakeCuda) -> None:
    pytest.importorskip("triton")
    told = on_fake_cuda(
        LOAD + "from mlbackends_kernels.cuda.device_array import DeviceArray as Operand\n"
        "for name in ('untyped_storage', 'cpu'):\n"
        "    setattr(Operand, name, lambda self: self)\n"
        "for name in ('copy_', 'set_'):\n"
        "    setattr(Operand, name, lambda self, *rest: None)\n"
        "Operand.new_empty = lambda self, *rest, **more: self\n"
        "Operand.storage_offset = lambda self: 0\n"
        "class Count(int):\n"
        "    def __call__(self): return self.shape\n"
        "def size(self):\n"
        "    count = Count(np.prod(self.shape))\n"
        "    count.shape = self.shape\n"
        "    return count\n"
        "Operand.size = property(size)\n"
        "Operand.stride = lambda self: self.strides\n"
        "from triton.runtime import driver\n"
        "class Driver:\n"
        "    def set_current_device(self, device): tell('triton')\n"
        "driver.set_active(Driver())\n"
        "a, b = on_device(left), on_device(right)\n"
        "def error(): return float(abs(bmm.run(a, b).numpy() - left @ right).max()) < 1e-5\n"
        "tell(error())\n"
        "mlbackends.python_native.triton.enabled = False\n"
        "tell(error())\n"
        "mlbackends.python_native.triton.enabled = True\n"
        "with mlbackends.python_native.operations_disabled('bmm'):\n"
        "    tell(error())\n"
        "tell(mlbackends.python_native.get_dsl_operations('triton'))\n"
        "tell(float(abs(mlbackends.matmul(a, b).numpy() - left @ right).max()) < 1e-5)\n"
        "tell(mlbackends.matmul(a, on_device(right[0])).shape == (left @ right[0]).shape)\n",
        TRITON_INTERPRET="1",
        FAKE_CAPABILITY="90",
    )
    operations = ["bmm"]
    assert told.values == ["triton", True, True, True, operations, "triton", True, True]

"""The speeds of the machine's arithmetic and memory, which backends are compared with.

The compiled library measures both with all threads; without it, numpy does, by a matrix product of its BLAS
and a copy by one thread. On a CUDA device they are torch's matrix product and a copy on the device.
"""

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mlbackends.base.errors import MlBackendsError, counted
from mlbackends_kernels.attention_cpu.library import NotBuilt, library
from mlbackends_kernels.attention_cpu.threads import get_num_threads
from mlbackends_kernels.checking import serving
from mlbackends_kernels.checking.ours import device_measure
from mlbackends_kernels.tensors.arithmetic import numpy

SIZE = 768
LARGEST_PRODUCT = 8192
#: The product on a device is enlarged until it takes this long.
_LEAST_SECONDS = 1e-3
READ = 256 << 20
COPIED = 96 << 20
DEVICE_COPIED = 1 << 30
_ROUNDS = 1 << 20
_STEP = 256


class Threads:
    """The threads that attention on the CPU would use; ctypes releases Python's lock."""

    def __init__(self) -> None:
        self.count = get_num_threads()
        self._pool = ThreadPoolExecutor(self.count)

    def __str__(self) -> str:
        return counted(self.count, "thread")

    def run(self, work: Callable[[int], Any]) -> None:
        """Call `work` with the number of each thread, and wait for all."""
        list(self._pool.map(work, range(self.count)))


class Measure(serving.Prepared):
    """Work of a known size. details: the size in "flops" or "bytes", a description in "by", and "threads"."""

    def __init__(self, run: Callable[[], Any], by: str, **size: int) -> None:
        self.run = run
        self.details = {**{unit: str(count) for unit, count in size.items()}, "by": by}

    def call(self) -> Any:
        return self.run()


def peak() -> Measure:
    """Return the measure of arithmetic: float32 multiply-adds in registers, by all threads."""
    function = compiled("multiply_adds", ctypes.c_int64)
    if function is None:
        return product()
    threads = Threads()
    flops = function(1) * _ROUNDS * threads.count
    by = f"float32 multiply-adds in registers, {threads}"
    return Measure(lambda: threads.run(lambda _: function(_ROUNDS)), by, flops=flops, threads=threads.count)


def product(size: int = SIZE) -> Measure:
    """Return a square matrix product by numpy's BLAS, which is close to the peak."""
    np = numpy()
    random = np.random.default_rng(0)
    left, right = (random.standard_normal((size, size), "float32") for _ in range(2))
    out = np.empty_like(left)
    by = f"numpy's float32 product of {size} x {size}"
    return Measure(lambda: np.matmul(left, right, out=out), by, flops=2 * size**3)


def bandwidth() -> Measure:
    """Return the measure of memory: an array larger than the caches, read in parts by all threads."""
    function = compiled("read", ctypes.c_void_p, ctypes.c_int64)
    if function is None:
        return copy()
    threads = Threads()
    part = READ // threads.count // _STEP * _STEP
    size = part * threads.count
    try:
        source = numpy().ones(size, "uint8")  # in huge pages
    except MlBackendsError:
        source = bytearray(b"\1") * size
    first = ctypes.c_char.from_buffer(source)

    def read(number: int) -> None:
        function(ctypes.addressof(first) + number * part, part)

    by = f"reading {READ >> 20} MiB, {threads}"
    return Measure(lambda: threads.run(read), by, bytes=size, threads=threads.count)


def copy() -> Measure:
    """Return a copy of a large array by numpy."""
    np = numpy()
    source = np.ones(COPIED, "uint8")
    target = np.zeros_like(source)
    by = f"a copy of {COPIED >> 20} MiB by one thread, bytes read and written"
    return Measure(lambda: np.copyto(target, source), by, bytes=2 * COPIED)


def compiled(name: str, *arguments: Any) -> Any:
    """Return a function of the compiled library, None without it."""
    try:
        function = getattr(library(), f"mlbackends_attention_{name}")
    except (NotBuilt, AttributeError):
        return None
    function.argtypes, function.restype = arguments, ctypes.c_int64
    return function


def device_product(index: int, dtype: str) -> Measure:
    """Return torch's square matrix product on a CUDA device, large enough to keep the device busy.

    Raises Refused without a torch that supports CUDA.
    """
    try:
        import torch
    except ImportError:
        raise serving.Refused("the peak is measured by torch, which is not installed") from None
    if not torch.cuda.is_available():
        raise serving.Refused("the peak is measured by torch, and this torch cannot use CUDA")
    place = device_measure(index)
    size = 128
    while True:
        # Random numbers: a GPU draws less power for zeros, and keeps a higher clock.
        kind = {"dtype": getattr(torch, dtype), "device": f"cuda:{index}"}
        left, right = (torch.randn(size, size, **kind) for _ in range(2))
        torch.matmul(left, right)
        torch.cuda.synchronize(index)
        start = time.perf_counter()
        torch.matmul(left, right)
        torch.cuda.synchronize(index)
        if size == LARGEST_PRODUCT or time.perf_counter() - start > _LEAST_SECONDS:
            break
        size *= 2
    by = f"torch's product of {size} x {size} matrices of {dtype}"
    measure = Measure(lambda: torch.matmul(left, right), by, flops=2 * size**3)
    measure.measure = place
    return measure


def device_copy(index: int) -> Measure:
    """Return a copy of a large array on a CUDA device."""
    from mlbackends_kernels.cuda.device_array import empty, zeros
    from mlbackends_kernels.cuda.devices import call

    place = device_measure(index)
    free, _ = call("cuMemGetInfo")
    size = min(DEVICE_COPIED, int(free) // 8)
    source = zeros((size,), "bool", index)
    target = empty((size,), "bool", index)
    by = f"a copy of {size >> 20} MiB on the device, bytes read and written"
    measure = Measure(
        lambda: call("cuMemcpyDtoDAsync", target.pointer, source.pointer, size, source.stream),
        by,
        bytes=2 * size,
    )
    measure.measure = place
    return measure


def responder(name: str) -> serving.Responder:
    """Return what answers requests for "peak" or "bandwidth".

    A request to prepare may have the index of a CUDA "device", and a "dtype".
    """
    on_host = {"peak": peak, "bandwidth": bandwidth}[name]

    def prepare(request: dict[str, Any]) -> Measure:
        if "device" not in request:
            return on_host()
        index = int(request["device"])
        return device_product(index, request["dtype"]) if name == "peak" else device_copy(index)

    return serving.responder(prepare)

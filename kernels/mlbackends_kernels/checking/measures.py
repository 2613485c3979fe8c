"""The speeds that the machine reaches beside the backends: of its arithmetic, and of its memory.

The compiled library measures both with all threads; without it, numpy does: a product of matrices by its
BLAS, and a copy by one thread.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mlbackends.model.errors import counted
from mlbackends_kernels.checking import serving
from mlbackends_kernels.tensors.arithmetic import numpy

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 768
READ = 256 << 20
COPIED = 96 << 20
_ROUNDS = 1 << 20
_STEP = 256


class Threads:
    """As many threads as attention on the CPU uses here; ctypes releases Python's lock."""

    def __init__(self) -> None:
        from mlbackends_kernels.attention_cpu.threads import get_num_threads

        self.count = get_num_threads()
        self._pool = ThreadPoolExecutor(self.count)

    def __str__(self) -> str:
        return counted(self.count, "thread")

    def run(self, work: Callable[[int], Any]) -> None:
        """Call `work` with the number of each thread, and return when all are done."""
        list(self._pool.map(work, range(self.count)))


class MultiplyAdds(serving.Prepared):
    """Multiply-adds of float32 in registers, by all threads."""

    def __init__(self, function: Any) -> None:
        self.threads, self.function = Threads(), function
        self.details = {
            "flops": str(function(1) * _ROUNDS * self.threads.count),
            "by": f"float32 multiply-adds in registers, {self.threads}",
        }

    def call(self) -> None:
        """Compute once."""
        self.threads.run(lambda _: self.function(_ROUNDS))


class Product(serving.Prepared):
    """A square matrix product by numpy's BLAS, which comes near the peak."""

    def __init__(self) -> None:
        random = numpy().random.default_rng(0)
        self.left, self.right = (random.standard_normal((SIZE, SIZE), "float32") for _ in range(2))
        self.out = numpy().empty_like(self.left)
        by = f"numpy's float32 product of {SIZE} x {SIZE}"
        self.details = {"flops": str(2 * SIZE**3), "by": by}

    def call(self) -> Any:
        """Multiply once."""
        return numpy().matmul(self.left, self.right, out=self.out)


class Read(serving.Prepared):
    """One array that no cache holds, read by all threads at once, each its part."""

    def __init__(self, function: Any) -> None:
        self.threads, self.function = Threads(), function
        self.part = READ // self.threads.count // _STEP * _STEP
        self.source = numpy().ones(self.part * self.threads.count, "uint8")
        by = f"reading {READ >> 20} MiB, {self.threads}"
        self.details = {"bytes": str(self.source.nbytes), "by": by}

    def call(self) -> None:
        """Read once."""
        start = self.source.ctypes.data
        self.threads.run(lambda number: self.function(start + number * self.part, self.part))


class Copy(serving.Prepared):
    """A copy of one large array to another by numpy."""

    def __init__(self) -> None:
        self.source = numpy().ones(COPIED, "uint8")
        self.target = numpy().zeros_like(self.source)
        by = f"a copy of {COPIED >> 20} MiB by one thread, bytes read and written"
        self.details = {"bytes": str(2 * COPIED), "by": by}

    def call(self) -> None:
        """Copy once."""
        numpy().copyto(self.target, self.source)


def peak() -> serving.Prepared:
    """Return the measure of arithmetic."""
    function = compiled("multiply_adds", ctypes.c_int64)
    return Product() if function is None else MultiplyAdds(function)


def bandwidth() -> serving.Prepared:
    """Return the measure of memory."""
    function = compiled("read", ctypes.c_void_p, ctypes.c_int64)
    return Copy() if function is None else Read(function)


def compiled(name: str, *arguments: Any) -> Any:
    """Return a function of the compiled library; None where that was not built, or is older."""
    from mlbackends_kernels.attention_cpu.library import NotBuilt, library

    try:
        found = getattr(library(), f"mlbackends_attention_{name}")
    except (NotBuilt, AttributeError):
        return None
    found.argtypes, found.restype = arguments, ctypes.c_int64
    return found


def answering(name: str) -> serving.Answering:
    """Return what answers requests for "peak" or "bandwidth"."""
    return serving.answering(lambda _: {"peak": peak, "bandwidth": bandwidth}[name]())

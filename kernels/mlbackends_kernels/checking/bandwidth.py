"""How fast this machine's memory is read, from arrays that no cache holds.

By all threads and the compiled library; without one, by a copy of numpy's, which one thread makes.
"""

import ctypes
from typing import Any

from mlbackends_kernels.checking import serving
from mlbackends_kernels.checking.threads import Together, compiled
from mlbackends_kernels.tensors.arithmetic import numpy

READ = 256 << 20
COPIED = 96 << 20
_STEP = 256


class Read(serving.Prepared):
    """One large array, read by all threads at once, each its part."""

    def __init__(self, function: Any) -> None:
        self.threads, self.function = Together(), function
        self.part = READ // self.threads.count // _STEP * _STEP
        self.source = numpy().ones(self.part * self.threads.count, "uint8")
        self.told = {
            "bytes": str(self.source.nbytes),
            "by": f"reading {READ >> 20} MiB, {self.threads.told}",
        }

    def call(self) -> None:
        """Read once."""
        start = self.source.ctypes.data
        self.threads.run(lambda number: self.function(start + number * self.part, self.part))


class Copy(serving.Prepared):
    """A copy of one large array to another by numpy."""

    def __init__(self) -> None:
        self.source = numpy().ones(COPIED, "uint8")
        self.target = numpy().zeros_like(self.source)
        told = f"a copy of {COPIED >> 20} MiB by one thread, bytes read and written"
        self.told = {"bytes": str(2 * COPIED), "by": told}

    def call(self) -> None:
        """Copy once."""
        numpy().copyto(self.target, self.source)


def measure() -> serving.Prepared:
    """Return the best measure that there is."""
    function = compiled("read", ctypes.c_void_p, ctypes.c_int64)
    return Copy() if function is None else Read(function)


def main() -> None:
    """Answer requests until standard input ends."""
    serving.serve(lambda _: measure())

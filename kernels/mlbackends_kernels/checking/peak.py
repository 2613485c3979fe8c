"""The speed that this machine's arithmetic reaches, measured beside what is held to it.

Multiply-adds of float32 in registers, by the compiled library; without one, a product of matrices by
numpy's BLAS, which comes near.
"""

import ctypes
from typing import Any

from mlbackends_kernels.checking import serving
from mlbackends_kernels.checking.threads import Together, compiled
from mlbackends_kernels.tensors.arithmetic import numpy

SIZE = 768
_ROUNDS = 1 << 20


class MultiplyAdds(serving.Prepared):
    """Multiply-adds that need no memory, on all threads at once."""

    def __init__(self, function: Any) -> None:
        self.threads, self.function = Together(), function
        a_round = function(1)
        self.told = {
            "flops": str(a_round * _ROUNDS * self.threads.count),
            "by": f"float32 multiply-adds in registers, {self.threads.told}",
        }

    def call(self) -> None:
        """Compute once."""
        self.threads.run(lambda _: self.function(_ROUNDS))


class Product(serving.Prepared):
    """A square matrix product by numpy's BLAS: what a well-kept library gets out of the machine."""

    def __init__(self) -> None:
        random = numpy().random.default_rng(0)
        self.left, self.right = (random.standard_normal((SIZE, SIZE), "float32") for _ in range(2))
        self.out = numpy().empty_like(self.left)
        self.told = {"flops": str(2 * SIZE**3), "by": f"numpy's float32 product of {SIZE} x {SIZE}"}

    def call(self) -> Any:
        """Multiply once."""
        return numpy().matmul(self.left, self.right, out=self.out)


def measure() -> serving.Prepared:
    """Return the best measure that there is."""
    function = compiled("multiply_adds", ctypes.c_int64)
    return Product() if function is None else MultiplyAdds(function)


def main() -> None:
    """Answer requests until standard input ends."""
    serving.serve(lambda _: measure())

"""The speed that this machine reaches, measured beside what is held to it: a product in float32."""

from typing import Any

from mlbackends.kernels.checking import serving
from mlbackends.kernels.tensors.arithmetic import numpy

SIZE = 768
FLOPS = 2 * SIZE**3


class Product(serving.Prepared):
    """A square matrix product by numpy's BLAS: what a well-kept library gets out of the machine."""

    def __init__(self) -> None:
        random = numpy().random.default_rng(0)
        self.left, self.right = (random.standard_normal((SIZE, SIZE), "float32") for _ in range(2))
        self.out = numpy().empty_like(self.left)
        self.told = {"flops": str(FLOPS), "by": f"numpy's float32 product of {SIZE} x {SIZE}"}

    def call(self) -> Any:
        """Multiply once."""
        return numpy().matmul(self.left, self.right, out=self.out)


def main() -> None:
    """Answer requests until standard input ends."""
    serving.serve(lambda _: Product())

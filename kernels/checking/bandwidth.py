"""How fast this machine's memory is read and written by one thread: a copy that no cache holds."""

from typing import Any

from mlbackends.kernels.checking import serving
from mlbackends.kernels.tensors.arithmetic import numpy

COPIED = 96 << 20


class Copy(serving.Prepared):
    """A copy of one large array to another by numpy."""

    def __init__(self) -> None:
        self.source = numpy().ones(COPIED, "uint8")
        self.target = numpy().zeros_like(self.source)
        told = f"a copy of {COPIED >> 20} MiB by one thread, bytes read and written"
        self.told = {"bytes": str(2 * COPIED), "by": told}

    def call(self) -> Any:
        """Copy once."""
        numpy().copyto(self.target, self.source)


def main() -> None:
    """Answer requests until standard input ends."""
    serving.serve(lambda _: Copy())

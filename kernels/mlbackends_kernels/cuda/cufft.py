"""cuFFT's plans: what a transform needs to know beside the numbers, made once and run often.

Source: cuFFT documentation, sections on the advanced data layout, cufftMakePlanMany64, cufftExec*.
"""

import ctypes
import threading
from typing import NamedTuple

from mlbackends_kernels.cuda.libraries import open_library

FORWARD, INVERSE = -1, 1
MOST_AXES = 3
"""A plan transforms along at most so many axes."""

_KINDS = {
    ("c2c", "complex64"): (0x29, "cufftExecC2C"),
    ("r2c", "float32"): (0x2A, "cufftExecR2C"),
    ("c2r", "complex64"): (0x2C, "cufftExecC2R"),
    ("c2c", "complex128"): (0x69, "cufftExecZ2Z"),
    ("r2c", "float64"): (0x6A, "cufftExecD2Z"),
    ("c2r", "complex128"): (0x6C, "cufftExecZ2D"),
}


class Layout(NamedTuple):
    """How elements lie, all counted in elements.

    embed: the sizes of the array in memory along the transformed axes. step: between neighbours
    along the last of them. distance: between one transform of the batch and the next.
    """

    embed: tuple[int, ...]
    step: int
    distance: int


class Shape(NamedTuple):
    """What a plan is made for, and the key under which it is kept.

    kind: c2c, r2c or c2r. dtype: of the input. sizes: of the transform, along one to three axes.
    """

    kind: str
    dtype: str
    sizes: tuple[int, ...]
    source: Layout
    target: Layout
    batch: int


class Plan:
    """A plan of cuFFT. The device on which it is made must be current, whenever it is used."""

    def __init__(self, shape: Shape) -> None:
        number, self._function = _KINDS[shape.kind, shape.dtype]
        self._is_complex = shape.kind == "c2c"
        self._library = open_library("cufft", "cufft")
        self._handle = ctypes.c_int()
        self._destroying = threading.Lock()
        self._is_alive = False
        self._library("cufftCreate", ctypes.byref(self._handle))
        self._is_alive = True
        try:
            self._make(shape, number)
        except BaseException:
            self.destroy()
            raise

    def _make(self, shape: Shape, number: int) -> None:
        rank = len(shape.sizes)
        numbers = ctypes.c_longlong * rank
        work_bytes = ctypes.c_size_t()
        sides = []
        for layout in (shape.source, shape.target):
            step, distance = ctypes.c_longlong(layout.step), ctypes.c_longlong(layout.distance)
            sides += [numbers(*layout.embed), step, distance]
        self._library(
            "cufftMakePlanMany64",
            *(self._handle, ctypes.c_int(rank), numbers(*shape.sizes), *sides),
            *(ctypes.c_int(number), ctypes.c_longlong(shape.batch), ctypes.byref(work_bytes)),
        )

    def run(self, source: int, target: int, direction: int) -> None:
        """Transform what lies at one address to another. A c2r transform spoils its source."""
        arguments = [self._handle, ctypes.c_void_p(source), ctypes.c_void_p(target)]
        if self._is_complex:
            arguments.append(ctypes.c_int(direction))
        self._library(self._function, *arguments)

    def destroy(self) -> None:
        """Give the plan and its work area back; a second time does nothing."""
        with self._destroying:
            if self._is_alive:
                self._is_alive = False
                self._library.status("cufftDestroy", self._handle)

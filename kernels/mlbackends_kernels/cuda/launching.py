"""Kernels of our own: loaded once a process, and launched by cuda.core on a stream.

A launch costs about as much as cuda.core's own: grids and blocks are made into a configuration once.
"""

import ctypes
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlbackends_kernels.cuda.devices import call, capability, driver
from mlbackends_kernels.cuda.errors import our_errors
from mlbackends_kernels.cuda.streams import of_core

if TYPE_CHECKING:
    from collections.abc import Callable

_USUAL_SHARED_BYTES = 48 << 10
"""More dynamic shared memory than this must be allowed for each kernel and device."""

Sizes = tuple[int, int, int]


class Kernel:
    """A kernel of a cubin. shared: bytes of dynamic shared memory of a block."""

    def __init__(self, cubin: bytes, name: str, block: Sizes, shared: int = 0) -> None:
        from cuda.core import ObjectCode, launch

        driver()
        with our_errors(f"loading {name}"):
            self._kernel = ObjectCode.from_cubin(cubin).get_kernel(name)
        self.name, self.block, self.shared = name, block, shared
        self._launch: Callable[..., None] = launch
        self._allowed: set[int] = set()

    def __call__(self, index: int, stream: int, grid: Sizes, *arguments: object) -> None:
        """Queue the kernel on a stream of the device with an index, which must be the current one.

        arguments: what the kernel takes, in order: an address as an int, a number as one of NumPy's
        scalars or of ctypes; or one structure of ctypes. Raises CudaError where the launch is refused.
        """
        if self.shared > _USUAL_SHARED_BYTES and index not in self._allowed:
            self._allow(index)
        if isinstance(arguments[0], ctypes.Structure):  # cuda.core 1.2 takes none
            self._launch_with(stream, grid, arguments[0])
            return
        config = _configuration(grid, self.block, self.shared)
        try:
            self._launch(of_core(stream), config, self._kernel, *arguments)
        except Exception:
            with our_errors(f"the launch of {self.name}"):
                raise

    def _launch_with(self, stream: int, grid: Sizes, structure: ctypes.Structure) -> None:
        function = driver().CUfunction(int(self._kernel.handle))
        addresses = (ctypes.c_void_p * 1)(ctypes.addressof(structure))
        sizes = (*grid, *self.block, self.shared)
        call("cuLaunchKernel", function, *sizes, stream, ctypes.addressof(addresses), 0)

    def _allow(self, index: int) -> None:
        attribute = driver().CUfunction_attribute
        limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        where = self._kernel.handle, call("cuDeviceGet", index)
        call("cuKernelSetAttribute", limit, self.shared, *where)
        self._allowed.add(index)


@functools.lru_cache(maxsize=1024)
def _configuration(grid: Sizes, block: Sizes, shared: int) -> Any:
    from cuda.core import LaunchConfig

    return LaunchConfig(grid=grid, block=block, shmem_size=shared)


@functools.cache
def from_source(file: str, name: str, index: int, block: Sizes, shared: int = 0) -> Kernel:
    """Return a kernel of a CUDA C++ file beside this one, compiled for a device at its first use.

    Raises CudaUnavailable where there is no NVRTC, or none that knows the device.
    """
    return Kernel(_compiled(file, capability(index)), name, block, shared)


@functools.cache
def _compiled(file: str, chip: tuple[int, int]) -> bytes:
    from cuda.core import Program, ProgramOptions

    source = Path(__file__).with_name(file).read_text(encoding="utf-8")
    options = ProgramOptions(name=file, arch=f"sm_{chip[0]}{chip[1]}", std="c++17")
    with our_errors(f"compiling {file}"):
        return bytes(Program(source, "c++", options).compile("cubin").code)

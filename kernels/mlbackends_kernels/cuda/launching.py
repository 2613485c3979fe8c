"""Kernels of our own: loaded once a process, and launched on a stream.

A launch costs about as much as cuda.core's own: what repeats, such as configurations, is made once.
"""

import ctypes
import functools
from typing import TYPE_CHECKING, Any

from mlbackends_kernels.cuda.compiling import machine_code
from mlbackends_kernels.cuda.devices import call, capability, driver
from mlbackends_kernels.cuda.errors import CudaError, our_errors
from mlbackends_kernels.cuda.streams import of_core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_WORD = 8
#: More dynamic shared memory than this must be allowed for each kernel and device.
_USUAL_SHARED_BYTES = 48 << 10

Sizes = tuple[int, int, int]


class Kernel:
    """A kernel of a cubin. shared: bytes of dynamic shared memory of a block."""

    def __init__(self, cubin: bytes, name: str, block: Sizes, shared: int = 0) -> None:
        from cuda.core import ObjectCode, launch

        driver()
        with our_errors(f"loading {name}"):
            self._kernel = ObjectCode.from_cubin(cubin).get_kernel(name)
        self.function = driver().CUfunction(int(self._kernel.handle))
        self.name, self.block, self.shared = name, block, shared
        self._launch: Callable[..., None] = launch
        self._allowed: set[int] = set()

    def __call__(self, index: int, stream: int, grid: Sizes, *arguments: object) -> None:
        """Queue the kernel on a stream of the device with an index, which must be the current one.

        arguments: what the kernel takes, in order: an address as an int, a number as one of NumPy's
        scalars or of ctypes; or one structure of ctypes. Raises CudaError where the launch is refused.
        """
        self.allow(index)
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
        addresses = (ctypes.c_void_p * 1)(ctypes.addressof(structure))
        sizes = (*grid, *self.block, self.shared)
        call("cuLaunchKernel", self.function, *sizes, stream, ctypes.addressof(addresses), 0)

    def allow(self, index: int) -> None:
        """Have a device, the current one, give the kernel the shared memory that it needs."""
        if self.shared <= _USUAL_SHARED_BYTES or index in self._allowed:
            return
        attribute = driver().CUfunction_attribute
        limit = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        where = self._kernel.handle, call("cuDeviceGet", index)
        call("cuKernelSetAttribute", limit, self.shared, *where)
        self._allowed.add(index)


class PreparedLaunches:
    """Launches that have one structure of arguments, of which each call changes the addresses alone.

    launches: kernels with their grids, in order; index: of their device, which is the current one.
    offsets: the number of an address, and where in the structure it stands, in bytes. Threads may call
    it at once.
    """

    def __init__(
        self,
        launches: "Sequence[tuple[Kernel, Sizes]]",
        index: int,
        structure: ctypes.Structure,
        offsets: "Sequence[tuple[int, int]]",
    ) -> None:
        queue = driver().cuLaunchKernel
        self._launches = []
        for kernel, grid in launches:
            kernel.allow(index)
            sizes = *grid, *kernel.block, kernel.shared
            self._launches.append((functools.partial(queue, kernel.function, *sizes), kernel.name))
        self._bytes = bytes(structure)
        self._words = [(place, offset // _WORD) for place, offset in offsets]
        self._spare: list[tuple[Any, Any, int]] = []

    def __call__(self, stream: int, addresses: "Sequence[int]") -> None:
        """Queue them on a stream of the device, which must be the current one.

        addresses: in the order of their numbers. Raises CudaError where a launch is refused.
        """
        try:
            spare = self._spare.pop()
        except IndexError:  # each thread that is here has one
            spare = self._room()
        words, _, at = spare
        for place, word in self._words:
            words[word] = addresses[place]
        for launch, name in self._launches:
            (status,) = launch(stream, at, 0)
            if status:
                raise CudaError(f"the launch of {name}", int(status), status.name)
        self._spare.append(spare)

    def _room(self) -> tuple[Any, Any, int]:
        """Return a copy of the structure in words, and the pointer to it with its own address."""
        count = -(-len(self._bytes) // _WORD)
        words = (ctypes.c_uint64 * count).from_buffer_copy(self._bytes.ljust(count * _WORD))
        pointer = (ctypes.c_void_p * 1)(ctypes.addressof(words))
        return words, pointer, ctypes.addressof(pointer)


@functools.lru_cache(maxsize=1024)
def _configuration(grid: Sizes, block: Sizes, shared: int) -> Any:
    from cuda.core import LaunchConfig

    return LaunchConfig(grid=grid, block=block, shmem_size=shared)


@functools.cache
def from_source(source: "Path", name: str, index: int, block: Sizes, shared: int = 0) -> Kernel:
    """Return a kernel of a CUDA C++ file, compiled for a device at its first use; see `machine_code`."""
    return Kernel(machine_code(source, capability(index)), name, block, shared)

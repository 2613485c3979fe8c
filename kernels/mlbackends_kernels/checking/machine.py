"""What `backends bench` times: a matrix product, attention, and a file on a disk."""

import contextlib
import mmap
import os
import shutil
import tempfile
import time
from typing import Any

from mlbackends.base.errors import MlBackendsError
from mlbackends.sdpa.attend import scaled_dot_product_attention
from mlbackends.sdpa.calls import last_attention
from mlbackends_kernels.checking import serving
from mlbackends_kernels.checking.measures import Measure, product
from mlbackends_kernels.tensors.arithmetic import numpy

if os.name != "nt":
    import fcntl

PRODUCT_SIZE = 1536
_SHAPE = (1, 8, 1024, 64)
_FILE, _BLOCK = 64 << 20, 1 << 20
#: A slow disk gets a smaller file: what it writes in this time.
_SECONDS = 0.4
#: With less free space than this many files a disk is left alone.
_LEAST_FREE = 16


def attention() -> Measure:
    """Return attention in float32 by the backend that is chosen for it."""
    batch, heads, length, width = _SHAPE
    random = numpy().random.default_rng(0)
    inputs = [random.standard_normal(_SHAPE, "float32") for _ in range(3)]
    scaled_dot_product_attention(*inputs)
    called = last_attention()
    by = f"{called.backend if called else 'unknown'}, float32 {','.join(map(str, _SHAPE))}"
    flops = 4 * batch * heads * length**2 * width
    return Measure(lambda: scaled_dot_product_attention(*inputs), by, flops=flops)


class Disk(Measure):
    """Writing or reading a file without a name, which the system removes when this process ends.

    is_direct: whether the file system lets reads and writes bypass the page cache (O_DIRECT).
    """

    def __init__(self, action: str, folder: str) -> None:
        free = shutil.disk_usage(folder).free
        if free < _LEAST_FREE * _FILE:
            raise serving.Refused(
                f"the disk has {free >> 20} MiB free, and {_LEAST_FREE * _FILE >> 20} are needed"
            )
        self.file: Any = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  as long as the process
        self._block = mmap.mmap(-1, _BLOCK)  # aligned, as O_DIRECT requires
        self._block.write(os.urandom(_BLOCK))  # file systems compress or skip zeros
        self.is_direct = False
        with contextlib.suppress(NameError, AttributeError, OSError):  # not Linux, or not this file system
            flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
            fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_DIRECT)
            self.is_direct = True
        self.size = _FILE
        self.size = self.write(time.monotonic() + _SECONDS)
        how = "" if self.is_direct else ", through the page cache"
        by = f"sequential {action} in blocks of 1 MiB{how}"
        super().__init__(self.read if action == "read" else self.write, by, bytes=self.size)

    def write(self, end: float = float("inf")) -> int:
        """Write the file and wait until the disk has it; return the bytes written before the time `end`."""
        self.file.seek(0)
        written = 0
        while written < self.size and (not written or time.monotonic() < end):
            count = self.file.write(self._block)
            written += count
            if count < _BLOCK:
                raise OSError(f"only {written} bytes could be written")
            if not self.is_direct:
                os.fsync(self.file.fileno())
        os.fsync(self.file.fileno())
        return written

    def read(self) -> None:
        """Read the file, from the disk where the system can be made to."""
        if not self.is_direct and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.file.seek(0)
        for _ in range(self.size // _BLOCK):
            self.file.readinto(self._block)


def responder(name: str) -> serving.Responder:
    """Return what answers requests: "product", "attention", or "disk-write" and "disk-read" in a "folder"."""

    def prepare(request: dict[str, Any]) -> Measure:
        try:
            if name == "product":
                return product(PRODUCT_SIZE)
            return attention() if name == "attention" else Disk(name.removeprefix("disk-"), request["folder"])
        except MlBackendsError as error:  # numpy is missing
            raise serving.Refused(str(error)) from None
        except OSError as error:
            raise serving.Refused(f"no file could be written there: {error.strerror or error}") from None

    return serving.responder(prepare)

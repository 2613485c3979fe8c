"""A lock on a file, by which captures that write to it, and workers that share one, know of each other.

On Windows it is on a byte far behind any end, since nobody else may read or write what is locked there.
"""

import contextlib
import errno
import os

if os.name == "nt":
    import ctypes
    import msvcrt

    #: An offset of 2^62, and one byte: each as its lower and its upper half.
    _FAR = (0, 1 << 30, 1, 0)

    def lock(descriptor: int) -> bool:
        """Lock a file for this process alone; tell whether no other one has it."""
        kernel = ctypes.CDLL("kernel32")
        handle = ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))  # type: ignore[attr-defined]
        kernel.UnlockFile(handle, *_FAR)  # where it is ours already
        return bool(kernel.LockFile(handle, *_FAR))

    def share(descriptor: int) -> None:
        """Do nothing: the lock itself shows that somebody has the file."""

else:
    import fcntl

    def lock(descriptor: int) -> bool:
        """Lock a file for this process alone; tell whether no other one has it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # some file systems have no locks
            return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
        return True

    def share(descriptor: int) -> None:
        """Let others lock it in the same way: it shows that somebody has the file."""
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)

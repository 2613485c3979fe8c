"""The libraries that this process has loaded, and how one of them is held without loading anything."""

import ctypes
import os
import sys


def loaded_files() -> list[str]:
    """Return the path of each library that is loaded now, [] where the system does not tell.

    Linux is asked through /proc/self/maps: `dl_iterate_phdr` would call Python under the loader's
    lock, which another thread may want while it holds the interpreter's.
    """
    return _dyld_images() if sys.platform == "darwin" else _mapped_code()


def _mapped_code() -> list[str]:
    try:
        with open("/proc/self/maps", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found: dict[str, None] = {}
    for line in lines:
        parts = line.split(None, 5)
        if len(parts) == 6 and b"x" in parts[1] and parts[5].startswith(b"/"):
            found[os.fsdecode(parts[5].removesuffix(b" (deleted)"))] = None
    return list(found)


def _dyld_images() -> list[str]:
    # PyDLL: no other Python thread can unload an image between the count and the name.
    process = ctypes.PyDLL(None)
    name = process._dyld_get_image_name  # noqa: SLF001  that is what it is called
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.c_uint32]
    count: int = process._dyld_image_count()  # noqa: SLF001
    names = (name(index) for index in range(count))
    return list(dict.fromkeys(os.fsdecode(each) for each in names if each))


class Held:
    """A loaded library, kept from being unloaded until `release`. Raises OSError if it is not loaded."""

    def __init__(self, path: str) -> None:
        import _ctypes

        self.path = path
        self._close = _ctypes.dlclose
        self._find = _ctypes.dlsym
        # NOLOAD finds copies that were opened RTLD_LOCAL too, and never runs anybody's constructor.
        self._handle = _ctypes.dlopen(path, os.RTLD_LAZY | os.RTLD_NOLOAD)

    def address(self, symbol: str) -> int:
        """Return where a function is, in the library or in one that it needs; 0 if nowhere."""
        try:
            return self._find(self._handle, symbol)
        except OSError:
            return 0

    def release(self) -> None:
        """Let it be unloaded again, once nobody else holds it."""
        self._close(self._handle)


def is_readable(address: int, size: int) -> bool:
    """Tell whether a private, writable piece of this process's memory holds `size` bytes there.

    False where the system does not tell.
    """
    try:
        with open("/proc/self/maps", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    for line in lines:
        span, rights, *_ = line.split(None, 2)
        first, _, last = span.partition(b"-")
        if int(first, 16) <= address and address + size <= int(last, 16):
            return rights.startswith(b"rw")
    return False

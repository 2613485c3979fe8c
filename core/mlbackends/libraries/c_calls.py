"""C functions of an opened library: called by ctypes, each status checked.

`ctypes` and `CDLL` are ctypes' own and are imported at their first use: a survey that opens no library
needs neither, and a module can name them at its top.
"""

import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mlbackends.base.reasons import NotUsable
from mlbackends.base.tables import table
from mlbackends.model.records import Answer, Device, Library, Presence

__all__ = [
    "CDLL",
    "PAIRS",
    "Calls",
    "addends",
    "checked",
    "ctypes",
    "decimal_version",
    "of_devices",
    "open_driver",
    "require_sums",
    "status_names",
]

if TYPE_CHECKING:
    import ctypes
    from ctypes import CDLL
else:

    class _CTypes:
        def __getattr__(self, name: str) -> Any:
            import ctypes

            return getattr(ctypes, name)

    ctypes = _CTypes()
    CDLL = object


def open_driver(path: str) -> tuple[CDLL, str]:
    """Open a driver's library, even if it lacks functions that are not called. Raises OSError.

    Return it and the first function that the loader does not find, "" if there is none. ctypes resolves every
    function at once; NVIDIA's programs resolve each at its first call. Source: NVIDIA/go-nvml, dlopen.
    """
    try:
        return ctypes.CDLL(path), ""
    except OSError as error:
        symbol = re.search(r"undefined symbol: (\w+)|: (\w+): symbol not found", str(error))
        if symbol is None:
            raise
        dlopen = ctypes.CDLL(None).dlopen
        dlopen.restype, dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
        handle = dlopen(os.fsencode(path), os.RTLD_LAZY)
        if not handle:
            raise
        return ctypes.CDLL(path, handle=handle), symbol[1] or symbol[2]


def status_names(library: str) -> dict[int, str]:
    """Return the names of a library's statuses in statuses.json, {} if it is not listed."""
    names: dict[str, str] = table("libraries/statuses").get(library, {})
    return {int(status, 0): name for status, name in names.items()}


def decimal_version(number: int, major: int, minor: int = 100) -> str:
    """Return a version from one number: 20805 is 2.8.5 if major is 10,000.

    major, minor: how much one major and one minor version count.
    """
    return f"{number // major}.{number % major // minor}.{number % minor}"


def checked(device: Device, check: Callable[..., None], *arguments: object) -> Device:
    """Return a device as usable if a check succeeds, else with the reason of the failure."""
    try:
        check(*arguments)
    except NotUsable as stop:
        return replace(device, reasons=(stop.reason,))
    return replace(device, presence=Presence.USABLE)


def of_devices(library: Library, devices: Sequence[Device]) -> Answer:
    """Return the answer of a library with its devices.

    Raises NotUsable with the answer and the first device's reason if none of them computes.
    """
    answer = Answer(library, tuple(devices))
    if not any(device.presence is Presence.USABLE for device in devices):
        first = devices[0].reasons[0]
        raise NotUsable(first.code, first.message, first.hint, answer)
    return answer


#: The number of pairs that a device adds.
PAIRS = 256


def addends() -> "ctypes.Array[ctypes.c_uint32]":
    """Return two arrays of numbers to add, followed by space for their sums."""
    first = [number * 0x01020305 % (1 << 32) for number in range(PAIRS)]
    return (ctypes.c_uint32 * (3 * PAIRS))(*first, *[number * number + 7 for number in range(PAIRS)])


def require_sums(device: str, numbers: "ctypes.Array[ctypes.c_uint32]") -> None:
    """Raise NotUsable unless the right sums follow the addends."""
    rows = (numbers[start : start + PAIRS] for start in range(0, 3 * PAIRS, PAIRS))
    sums = zip(*rows, strict=True)
    if wrong := sum((first + other) % (1 << 32) != result for first, other, result in sums):
        message = f"{device} added {PAIRS} pairs of integers, and {wrong} sums are wrong"
        raise NotUsable("wrong-result", message)


class Calls:
    """Calls a library's functions that return a status, and raises NotUsable if that is not 0.

    No argument types are declared: an argument is a ctypes object, bytes, an int for a C int, or None for
    no address. namer: the library's function that names a status, if it has one; otherwise the names are
    those of `library` in statuses.json. unnamed: the name of other statuses. hint: that of the reason.
    hexadecimal: whether statuses are unsigned and shown in hexadecimal.

    learned: the answer that is kept if a call fails; None until it is set. opened: the library.
    """

    learned: Answer | None = None

    def __init__(
        self,
        opened: CDLL,
        library: str = "",
        namer: str = "",
        *,
        unnamed: str = "an unnamed status",
        hint: str = "",
        hexadecimal: bool = False,
    ) -> None:
        self.opened = opened
        self._library = library
        self._namer = namer
        self._unnamed = unnamed
        self._hint = hint
        self._hexadecimal = hexadecimal

    def __call__(self, function: str, *arguments: object) -> None:
        """Call a function.

        Raises NotUsable where the status is not 0, AttributeError where the function is missing.
        """
        if status := self.status(function, *arguments):
            raise self.failed(function, status)

    def status(self, function: str, *arguments: object) -> int:
        """Call a function and return its status."""
        entry = getattr(self.opened, function)
        entry.restype = ctypes.c_uint32 if self._hexadecimal else ctypes.c_int
        return int(entry(*arguments))

    def has(self, function: str) -> bool:
        """Return whether the library has a function."""
        return hasattr(self.opened, function)

    def require(self, function: str, *arguments: object, unsupported: int) -> None:
        """Call a function of which one status means that the hardware is not supported. Raises NotUsable."""
        if status := self.status(function, *arguments):
            code = "unsupported-hardware" if status == unsupported else "call-failed"
            raise self.failed(function, status, code)

    def create(self, function: str, *arguments: object) -> "ctypes.c_void_p":
        """Return the handle that a function writes to its first argument, given the others."""
        handle = ctypes.c_void_p()
        self(function, ctypes.byref(handle), *arguments)
        if not handle.value:
            raise self.failed(function, 0)
        return handle

    def handles(self, function: str, *owners: object, incomplete: int = 0) -> list[int]:
        """Return at most 64 handles that a function lists: one call for their number, one for them.

        incomplete: its status if there are more.
        """
        count = ctypes.c_uint32()
        self(function, *owners, ctypes.byref(count), None)
        count.value = min(count.value, 64)
        handles = (ctypes.c_void_p * (count.value + 1))()
        if count.value:
            status = self.status(function, *owners, ctypes.byref(count), handles)
            if status not in (0, incomplete):
                raise self.failed(function, status)
        return [handle for handle in handles[: count.value] if handle]

    def failed(
        self, function: str, status: int, code: str = "call-failed", about: str = "", hint: str = ""
    ) -> NotUsable:
        """Return the exception for a function that returned an error status.

        about: a text to add to the message.
        """
        number = f"{status:#x}" if self._hexadecimal else status
        name = self.name_of(status)
        message = f"{function} returned {number}{f' ({name})' if name else ''}"
        message += f": {about}" if about else ""
        return NotUsable(code, message, hint or self._hint, self.learned)

    def name_of(self, status: int) -> str:
        """Return the name of a status, `unnamed` if it has none."""
        text: bytes | None = None
        if self._namer == "cuGetErrorName":  # it writes the name's address to its second argument
            name = ctypes.c_char_p()
            self.status(self._namer, status, ctypes.byref(name))
            text = name.value
        elif self._namer and hasattr(self.opened, self._namer):
            namer = getattr(self.opened, self._namer)
            namer.restype = ctypes.c_char_p
            text = namer(ctypes.c_int(status))
        if text:
            return text.decode(errors="replace")
        return status_names(self._library).get(status, self._unnamed)

    def number(self, function: str, missing: int | None = None) -> int:
        """Return the size that a function without arguments returns.

        missing: the result if the function does not exist; without it that is an AttributeError.
        """
        if missing is not None and not hasattr(self.opened, function):
            return missing
        entry = getattr(self.opened, function)
        entry.restype = ctypes.c_size_t
        return int(entry())

    def text(self, function: str, *arguments: object) -> str:
        """Return the text that a function returns, "" for no address."""
        entry = getattr(self.opened, function)
        entry.restype = ctypes.c_char_p
        return (entry(*arguments) or b"").decode(errors="replace")

    def numbers(self, function: str, count: int) -> list[int]:
        """Return the ints that a function with a status writes to `count` addresses."""
        values = [ctypes.c_int(-1) for _ in range(count)]
        self(function, *map(ctypes.byref, values))
        return [value.value for value in values]

    def fill_and_read(self, prefix: str, device: str) -> None:
        """Let device 0 fill memory and copy it back, with the functions of CUDA's runtime or HIP.

        prefix: of their names, such as "hip". device: its name in a reason.
        """
        size, back, to_host = ctypes.c_size_t(4096), ctypes.create_string_buffer(4096), 2
        self(f"{prefix}SetDevice", 0)
        memory = self.create(f"{prefix}Malloc", size)
        self(f"{prefix}Memset", memory, 0x5A, size)
        self(f"{prefix}Memcpy", back, memory, size, to_host)
        self(f"{prefix}Free", memory)
        self.require_filled(device, back.raw, b"\x5a")

    def require_filled(self, device: str, memory: bytes, pattern: bytes) -> None:
        """Raise NotUsable unless all memory that a device filled has the pattern."""
        if memory != pattern * (len(memory) // len(pattern)):
            message = f"{device} filled {len(memory)} bytes with 0x{pattern.hex()}, and other bytes came back"
            raise NotUsable("wrong-result", message, learned=self.learned)

"""Calls of NVIDIA's libraries, each checked. Only for the child; see `mlbackends.isolation.worker`."""

import ctypes
from collections.abc import Mapping

from mlbackends.model.reasons import NotUsable


class Calls:
    """Calls a library's functions that return a status, and stops at the first that is not 0.

    Every argument must be a ctypes object, because no argument types are declared. namer: the
    library's function that names a status, used where it is there. names: names for those without.
    """

    def __init__(
        self, opened: ctypes.CDLL, namer: str = "", names: Mapping[int, str] | None = None
    ) -> None:
        self._opened = opened
        self._namer = namer
        self._names = names or {}

    def __call__(self, function: str, *arguments: object, about: str = "") -> None:
        """Call a function. about: what to add to the message if it fails.

        Raises NotUsable where the status is not 0, AttributeError where the function is missing.
        """
        status = self.status(function, *arguments)
        if status:
            said = f"{function} returned {status} ({self.name_of(status)}){about and ': '}{about}"
            raise NotUsable("call-failed", said)

    def status(self, function: str, *arguments: object) -> int:
        """Call a function and return its status."""
        entry = getattr(self._opened, function)
        entry.restype = ctypes.c_int
        return int(entry(*arguments))

    def name_of(self, status: int) -> str:
        """Return the name of a status, "an unnamed status" where nothing tells."""
        if self._namer and hasattr(self._opened, self._namer):
            namer = getattr(self._opened, self._namer)
            namer.restype = ctypes.c_char_p
            if name := namer(ctypes.c_int(status)):
                return str(name.decode(errors="replace"))
        return self._names.get(status, "an unnamed status")


def property_version(call: Calls, function: str) -> str:
    """Return "MAJOR.MINOR.PATCH" as a library's GetProperty function tells it, without a handle."""
    value = ctypes.c_int(-1)
    numbers = []
    for kind in range(3):  # libraryPropertyType: major, minor, patch
        call(function, ctypes.c_int(kind), ctypes.byref(value))
        numbers.append(str(value.value))
    return ".".join(numbers)

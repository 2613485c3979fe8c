"""C functions of an opened library: called by ctypes, each status checked.

`ctypes` and `CDLL` are ctypes' own and are imported at their first use: a survey that opens no library
needs neither, and a module can name them at its top.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mlbackends.model.reasons import NotUsable
from mlbackends.model.records import Answer
from mlbackends.model.tables import table

__all__ = ["CDLL", "Calls", "ctypes", "decimal_version", "status_names"]

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


def status_names(library: str) -> dict[int, str]:
    """Return the names of a library's statuses that statuses.json lists, {} where it has none."""
    names: dict[str, str] = table("libraries/statuses").get(library, {})
    return {int(status, 0): name for status, name in names.items()}


def decimal_version(number: int, major: int, minor: int = 100) -> str:
    """Return a version that a library returns as one number: 20805 is 2.8.5 where major is 10,000.

    major, minor: what one of the major and one of the minor version count in it.
    """
    return f"{number // major}.{number % major // minor}.{number % minor}"


class Calls:
    """Calls a library's functions that return a status, and stops at the first that is not 0.

    No argument types are declared: an argument is a ctypes object, bytes, an int for a C int, or None for
    no address. namer: the library's function that names a status, used where it is there. names: the
    names of statuses for those without. unnamed: stands for the others. hint: what the reason advises.
    hexadecimal: whether statuses are unsigned and written so.
    """

    def __init__(
        self,
        opened: CDLL,
        namer: str = "",
        names: Mapping[int, str] | None = None,
        *,
        unnamed: str = "an unnamed status",
        hint: str = "",
        hexadecimal: bool = False,
    ) -> None:
        self._opened = opened
        self._namer = namer
        self._names = names or {}
        self._unnamed = unnamed
        self._hint = hint
        self._hexadecimal = hexadecimal

    def __call__(
        self, function: str, *arguments: object, about: str = "", learned: Answer | None = None
    ) -> None:
        """Call a function. about: what to add to the message if it fails. learned: what is kept then.

        Raises NotUsable where the status is not 0, AttributeError where the function is missing.
        """
        if status := self.status(function, *arguments):
            raise self.failed(function, status, about=about, learned=learned)

    def status(self, function: str, *arguments: object) -> int:
        """Call a function and return its status."""
        entry = getattr(self._opened, function)
        entry.restype = ctypes.c_uint32 if self._hexadecimal else ctypes.c_int
        return int(entry(*arguments))

    def failed(
        self,
        function: str,
        status: int,
        code: str = "call-failed",
        *,
        about: str = "",
        hint: str = "",
        learned: Answer | None = None,
    ) -> NotUsable:
        """Return what to raise where a function returned a status that is an error."""
        name = self.name_of(status)
        number = f"{status:#x}" if self._hexadecimal else status
        message = f"{function} returned {number}{f' ({name})' if name else ''}"
        return NotUsable(code, f"{message}{about and ': '}{about}", hint or self._hint, learned)

    def name_of(self, status: int) -> str:
        """Return the name of a status, `unnamed` where nothing tells."""
        if self._namer and hasattr(self._opened, self._namer):
            namer = getattr(self._opened, self._namer)
            namer.restype = ctypes.c_char_p
            if name := namer(ctypes.c_int(status)):
                return str(name.decode(errors="replace"))
        return self._names.get(status, self._unnamed)

    def number(self, function: str, missing: int | None = None) -> int:
        """Return the size that a function without arguments returns.

        missing: stands for that of a function that is not there; without it that is an AttributeError.
        """
        if missing is not None and not hasattr(self._opened, function):
            return missing
        entry = getattr(self._opened, function)
        entry.restype = ctypes.c_size_t
        return int(entry())

    def text(self, function: str, *arguments: object) -> str:
        """Return the text that a function returns, "" for no address."""
        entry = getattr(self._opened, function)
        entry.restype = ctypes.c_char_p
        return (entry(*arguments) or b"").decode(errors="replace")

    def numbers(self, function: str, count: int) -> list[int]:
        """Return what a function with a status writes to as many addresses of an int."""
        values = [ctypes.c_int(-1) for _ in range(count)]
        self(function, *map(ctypes.byref, values))
        return [value.value for value in values]

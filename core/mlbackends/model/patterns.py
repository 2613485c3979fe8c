"""Regular expressions that are compiled when they are first used.

There are a hundred of them in the probes, most for files that a machine does not have; compiling them all
would be a tenth of a survey.
"""

import re
from typing import Any, cast


class _Lazy:
    """Stands for a compiled pattern until its first use."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(self._text, self._flags), name)
        # The next call finds the method here, and does not come by again.
        self.__dict__[name] = method
        return method


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return what behaves as `re.compile(text, flags)` does, except in `isinstance`."""
    return cast("re.Pattern[str]", _Lazy(text, flags))


URL_LOGIN = pattern(r"://[^/\s@]*@")
"""The name and password in an address, with the signs around it. No scheme is needed: looking for the
beginning of a word in a long one takes the square of its length."""


UUID = pattern(
    r"[0-9a-fA-F]{8}(?P<sign>[-_])(?:[0-9a-fA-F]{4}(?P=sign)){3}[0-9a-fA-F]{12}(?![0-9a-fA-F])"
)
HARDWARE_ADDRESS = pattern(
    r"(?<![0-9A-Za-z])[0-9a-fA-F]{2}(?P<sign>[:-])(?:[0-9a-fA-F]{2}(?P=sign)){4,6}[0-9a-fA-F]{2}"
    r"(?![0-9A-Za-z])"
)
"""Of six bytes; of eight as InfiniBand has them; of seven, of which the first is the kind, in BOOTIF=."""


DIGITS_AS_ZEROS = str.maketrans(dict.fromkeys("123456789abcdefABCDEF", "0"))
"""For `str.translate`: every hexadecimal digit as 0, to look for a form without a pattern."""


UNFIT = pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, which XML forbids and terminals execute
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what changes the direction of writing
    "\ud800-\udfff\ufeff\ufffe\uffff]"  # halves of characters, and what is no character
)
"""A character that cannot or must not be shown."""


def bytes_pattern(text: bytes, flags: int = 0) -> re.Pattern[bytes]:
    """Return the same for bytes."""
    return cast("re.Pattern[bytes]", _Lazy(text, flags))

"""The level that a library starts at, read from the environment as that library reads it.

Sources: oneMKL developer guide, "Using oneMKL Verbose Mode"; oneDNN documentation, "Verbose Mode";
tried with oneMKL 2024.2 and oneDNN 3.12, which take a word they do not know for no word.
"""

from collections.abc import Mapping
from typing import NamedTuple

Version = tuple[int, int]

_EXECUTION, _CREATION, _MORE = 1, 2, 4

_WORDS = {
    "1": _EXECUTION,
    "2": _EXECUTION | _CREATION,
    "profile_exec": _EXECUTION,
    "profile_create": _CREATION,
    "profile": _EXECUTION | _CREATION,
    "check": _MORE,
    "dispatch": _MORE,
    "profile_externals": _MORE,
    "all": _EXECUTION | _CREATION | _MORE,
    "-1": _EXECUTION | _CREATION | _MORE,
}
"""What each word of oneDNN 3.2 and newer adds; `error` and `warn` add nothing that a level could say."""


class Start(NamedTuple):
    """A level, and the text of a variable that asked for more than any level says ("" if none did)."""

    level: int
    beyond: str = ""


def mkl_start(environment: Mapping[str, str]) -> Start:
    """Return MKL's: exactly 0, 1 or 2; every other value is off."""
    value = environment.get("MKL_VERBOSE", "")
    return Start(int(value) if value in {"1", "2"} else 0)


def onednn_start(environment: Mapping[str, str], version: Version | None) -> Start:
    """Return oneDNN's. version: (major, minor); None for a copy that does not tell, as torch's."""
    variables: tuple[str, ...] = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")
    if version is not None:
        variables = variables[:2] if version >= (2, 5) else variables[1:]
    # One that is set to nothing counts as not set: the next is asked.
    variable = next((each for each in variables if environment.get(each)), "")
    value = environment.get(variable, "")
    if version is not None and version < (3, 2):
        return Start(min(max(_leading_integer(value), 0), 2))
    level, beyond = _words(value)
    return Start(level, f"{variable}={value}" if beyond else "")


def _leading_integer(text: str) -> int:
    """Return what C's atoi makes of a text."""
    text = text.lstrip(" \t\n\v\f\r")
    sign = -1 if text.startswith("-") else 1
    digits = text[1:] if text[:1] in {"-", "+"} else text
    count = next((i for i, each in enumerate(digits) if not "0" <= each <= "9"), len(digits))
    return sign * int(digits[: min(count, 12)] or "0")


def _words(value: str) -> tuple[int, bool]:
    """Return the nearest level for a list of words, and whether no level says the same."""
    flags = 0
    for word in value.lower().split(","):
        if word in {"0", "none"}:
            flags = 0
        elif word.startswith("filter="):
            flags |= _MORE
        else:
            flags |= _WORDS.get(word, 0)
    if flags & _CREATION:
        return 2, flags != _EXECUTION | _CREATION
    return flags & _EXECUTION, bool(flags & _MORE)

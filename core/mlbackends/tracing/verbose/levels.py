"""The level that a library starts at, read from the environment as it reads it.

Sources: oneMKL developer guide, "Using oneMKL Verbose Mode"; oneDNN documentation, "Verbose Mode";
tried with oneMKL 2024.2 and oneDNN 3.12, which ignore words that they do not know.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from mlbackends.base.tables import table

Version = tuple[int, int]

_EXECUTION, _CREATION, _MORE = 1, 2, 4
#: What each word of oneDNN 3.2 and newer adds; `error` and `warn` change no level.
_WORDS: dict[str, int] = table("tracing/verbose/libraries")["words"]


class Start(NamedTuple):
    """A level, and the text of a variable that sets more than any level does ("" if none does)."""

    level: int
    beyond: str = ""


def mkl_start(environment: Mapping[str, str]) -> Start:
    """Return MKL's: exactly 0, 1 or 2; every other value is off."""
    value = environment.get("MKL_VERBOSE", "")
    return Start(int(value) if value in {"1", "2"} else 0)


def onednn_start(environment: Mapping[str, str], version: Version | None) -> Start:
    """Return oneDNN's. version: (major, minor); None for a copy that does not report it, such as torch's."""
    variables: tuple[str, ...] = ("ONEDNN_VERBOSE", "DNNL_VERBOSE", "MKLDNN_VERBOSE")
    if version is not None:
        variables = variables[:2] if version >= (2, 5) else variables[1:]
    # One that is set to nothing counts as not set: the next is read.
    variable = next((name for name in variables if environment.get(name)), "")
    value = environment.get(variable, "")
    if version is not None and version < (3, 2):
        number = re.match(r"\s*([-+]?[0-9]{1,12})", value, re.ASCII)  # as C's atoi
        return Start(min(max(int(number[1]), 0), 2) if number else 0)
    flags = 0
    for word in value.lower().split(","):
        if word in {"0", "none"}:
            flags = 0
        else:
            flags |= _MORE if word.startswith("filter=") else _WORDS.get(word, 0)
    level = 2 if flags & _CREATION else flags & _EXECUTION
    has_more = flags not in (0, _EXECUTION, _EXECUTION | _CREATION)
    return Start(level, f"{variable}={value}" if has_more else "")

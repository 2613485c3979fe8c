"""SDPBackend: torch's names for the kinds of attention backends.

Several of our backends may answer to one of them: FLASH_ATTENTION is a kernel for the CPU here and
one for a GPU there.
"""

import sys
from enum import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SDPBackend(Enum):
    """The kinds of attention backends, with torch's numbers."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__

    @classmethod
    def _missing_(cls, value: object) -> None:
        members = ", ".join(f"{member.name} {member.value}" for member in cls)
        if not isinstance(value, int):
            raise TypeError(f"SDPBackend takes a number, but got {type(value).__name__}: {members}")
        raise ValueError(f"SDPBackend has no {value}; it has {members}")


def as_backend(thing: object) -> SDPBackend | None:
    """Return a kind, also where it is written with torch's own SDPBackend; None for anything else.

    torch's member must have the name and the number of ours.
    """
    if isinstance(thing, SDPBackend):
        return thing
    torch: Any = sys.modules.get("torch")
    theirs = getattr(getattr(torch, "_C", None), "_SDPBackend", None)
    if not isinstance(theirs, type) or not isinstance(thing, theirs):
        return None
    member: Any = thing
    found = SDPBackend.__members__.get(str(member.name))
    return found if found is not None and found.value == int(member) else None

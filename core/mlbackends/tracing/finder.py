"""What the files of findings/ stand on: what they are told, and how they say how much time it is."""

from typing import Protocol

from msgspec import Struct

from mlbackends.model.trace import Record
from mlbackends.model.trace_views import Finding

KINDS = ("work", "uncounted", "notes")
"""Calls whose time belongs in a total, other calls, and what is no call."""
SEVERITIES = ("high", "medium", "low", "note")
_LONGEST = 600


class Machine(Struct, frozen=True):
    """What is known of the machine beside the trace; "" is not told.

    capability: the fact `cpu.capability` of a report: "AVX2", "AVX512", ... mkl_kernel: the name of MKL's
    kernel file that the process has mapped: "libmkl_def.so.3".
    """

    capability: str = ""
    mkl_kernel: str = ""


class Whole(Struct, frozen=True):
    """All counted calls of the trace: what shares are of."""

    count: int
    total_ns: float

    def share(self, duration_ns: float) -> float:
        """Return a time's share of the whole, 0 where there is none."""
        return duration_ns / self.total_ns if self.total_ns else 0.0


class Watch(Protocol):
    """Looks for one thing. Its file's docstring says what the thing is.

    WANTS: of KINDS, those that it is given; asking each of a million records thirteen times costs.
    """

    WANTS: frozenset[str]

    def __init__(self, machine: Machine) -> None: ...

    def add(self, record: Record) -> None:
        """Take in one record."""

    def result(self, whole: Whole) -> list[Finding]:
        """Return what was found; [] if nothing."""


class Evidence:
    """Keeps the first few lines that show something."""

    def __init__(self, most: int = 3) -> None:
        self._most = most
        self._lines: dict[str, None] = {}

    def add(self, record: Record) -> None:
        """Keep a record's line, if there is room."""
        if len(self._lines) < self._most:
            line = record.raw
            self._lines[line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."] = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines, each once."""
        return tuple(self._lines)


def percent(share: float) -> str:
    """Return a share for people: "12%", "0.4%", "<0.1%"."""
    if share >= 0.1 or not share:
        return f"{share:.0%}"
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


def took(duration_ns: float) -> str:
    """Return a time for people, of three digits or whole seconds: "1.23 ms", "1,070 s"."""
    if duration_ns >= 1e12:
        return f"{duration_ns / 1e9:,.0f} s"
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if duration_ns >= factor:
            return f"{duration_ns / factor:.3g} {unit}"
    return f"{duration_ns:.3g} ns"


def times(count: int, what: str) -> str:
    """Return "1 call", "2,000 calls"."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def by_share(share: float, *, high: float = 1.0, medium: float = 1.0) -> str:
    """Return the severity of something that takes this share of the time."""
    if share >= high:
        return "high"
    return "medium" if share >= medium else "low"

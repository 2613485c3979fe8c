"""What the files of findings/ are made of: what they are given, and how they report times and shares."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from mlbackends.model.trace import Record
from mlbackends.model.trace_views import Finding

KINDS = ("work", "uncounted", "notes")
"""Calls whose time belongs in a total, other calls, and what is no call."""
SEVERITIES = ("high", "medium", "low", "note")
_LONGEST = 600


Found = Iterator[Finding]


class Sum:
    """How many calls there were, their time, and the first `most` different lines of them."""

    def __init__(self, most: int = 2) -> None:
        self.count = 0
        self.total_ns = 0.0
        self._most = most
        self._lines: dict[str, None] = {}

    def add(self, record: Record, count: int, total_ns: float) -> None:
        """Add calls that are equal to one."""
        self.count += count
        self.total_ns += total_ns
        if len(self._lines) < self._most:
            line = record.raw
            self._lines[line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."] = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines, each once."""
        return tuple(self._lines)


class Finder:
    """Looks for one thing. Its file's name is the finding's code, its file's docstring describes it.

    Most add calls up by `key`; others override `add`, `add_more`, `take` or `follow`.
    capability: the processor's, the fact `cpu.capability` of a report: "AVX512", ...; "" is not known.
    WANTS: of KINDS, those that it is given; asking each of a million records thirteen times costs.
    WHY, ACTION: those of its findings. LINES: so many lines of the trace show each sum.
    all_count, all_ns: the counted calls of the trace, at the end.
    """

    WANTS = frozenset(("work",))
    WHY = ACTION = ""
    LINES = 2

    def __init__(self, capability: str) -> None:
        self.capability = capability
        self.all_count = 0
        self.all_ns = 0.0
        self.sums: defaultdict[Any, Sum] = defaultdict(lambda: Sum(self.LINES))
        self.begin()

    def begin(self) -> None:
        """Make what else is collected into."""

    def key(self, record: Record) -> Hashable | None:
        """Return which of `sums` a record belongs to, None for none."""
        del record
        return None

    def add(self, record: Record) -> None:
        """Take in one record."""
        self.take(record, 1, record.duration_ns or 0.0)

    def add_more(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added."""
        self.take(record, count, sum(durations))

    def take(self, record: Record, count: int, total_ns: float) -> None:
        """Take in a record, or a sum over equal calls."""
        key = self.key(record)
        if key is not None:
            self.sums[key].add(record, count, total_ns)

    def follow(self, record: Record) -> Callable[[float], None] | None:
        """Return what takes the time of each later call that is equal to one that was added, in order."""
        del record
        return None

    def result(self) -> Found:
        """Yield what was found."""
        raise NotImplementedError

    def share(self, duration_ns: float) -> float:
        """Return a time's share of all counted calls, 0 where there is none."""
        return duration_ns / self.all_ns if self.all_ns else 0.0

    def finding(self, severity: str, seen: str, calls: Sum | None = None, **fields: Any) -> Finding:
        """Return a finding of this code; fields: as in Finding, by default those of the calls."""
        of_calls: dict[str, Any] = {}
        if calls is not None:
            of_calls = {"count": calls.count, "total_ns": calls.total_ns, "evidence": calls.lines}
            of_calls["share"] = self.share(calls.total_ns)
        code = type(self).__module__.rpartition(".")[2].replace("_", "-")
        texts = {"severity": severity, "seen": seen, "why": self.WHY, "action": self.ACTION}
        return Finding(code=code, **{**texts, **of_calls, **fields})


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

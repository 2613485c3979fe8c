"""What the files of findings/ are made of: what they are given, and how they report times and shares."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from math import inf
from typing import Any

from mlbackends.base import registry
from mlbackends.base.errors import counted
from mlbackends.base.tables import table
from mlbackends.model.trace import Call, MklCall, Record, Ukernel
from mlbackends.model.trace_views import Finding
from mlbackends.tracing.formats.onednn.descriptors import ELEMENT_BYTES
from mlbackends.tracing.groups import Tally
from mlbackends.tracing.machine import Machine
from mlbackends.tracing.numbers import whole_number

REGISTRY = "mlbackends.tracing.findings"
#: Calls whose time is counted, other calls, and other records.
KINDS = ("work", "uncounted", "notes")
SEVERITIES = ("high", "medium", "low", "note")
_LONGEST = 600
_MOST_ROWS = 4
#: MKL's thread counts: of all domains, and of domains with a separate number.
_POOLS = ("NThr", "BLAS", "LAPACK", "FFT", "PARDISO")
_PRODUCTS = frozenset(("matmul", "convolution", "deconvolution", "inner_product", "gemm_api", "brgemm"))


Found = Iterator[Finding]


class Sum:
    """How many calls there were, their time, and a line of each of the first `most` different ones."""

    def __init__(self, most: int = 2) -> None:
        self.count = 0
        self.total_ns = 0.0
        self._most = most
        self._lines: dict[str, str] = {}
        self._rows: list[tuple[float, str]] = []

    def add(self, record: Record, count: int, total_ns: float) -> None:
        """Add calls that are equal to one."""
        self.count += count
        self.total_ns += total_ns
        if len(self._lines) < self._most:
            self._lines.setdefault(record.key or record.raw, shown(record))

    def add_calls(self, calls: "Calls", about: str, count: int = 0, total_ns: float = 0.0) -> None:
        """Add equal calls, with a row about them. count, total_ns: or some of them."""
        total_ns = total_ns or calls.total_ns
        self.add(calls.record, count or calls.count, total_ns)
        self._rows.append((-total_ns, f"{counted(calls.count, 'call')} of {calls.name}: {about}"))

    @property
    def lines(self) -> tuple[str, ...]:
        """The rows of the calls that took longest, and the lines, each once."""
        return (*(row for _, row in sorted(self._rows)[:_MOST_ROWS]), *self._lines.values())


class Calls:
    """Equal calls of one run of a process. first, later: the times of the first ones, and of the others.

    First is the first call of each thread. record: one of them; longest: the record of the longest first
    call. threads: those that called. pool: how many threads each call may use; 0 where that is not known.
    """

    __slots__ = ("first", "later", "longest", "pool", "record", "threads", "untimed")

    def __init__(self, record: Call, pool: int) -> None:
        self.threads: set[int | None] = set()
        self.first, self.later = Tally(), Tally()
        self.record, self.pool = record, pool
        self.longest: Record = record
        self.untimed = 0

    def add(self, record: Record) -> None:
        """Take in a call."""
        duration = record.duration_ns
        if duration is None:
            self.untimed += 1
            return
        if record.thread in self.threads:
            self.later.add_many(1, (duration,))
            return
        self.threads.add(record.thread)
        self.first.add_many(1, (duration,))
        if duration > (self.longest.duration_ns or 0.0):
            self.longest = record

    @property
    def count(self) -> int:
        """How many there are."""
        return self.first.count + self.later.count + self.untimed

    @property
    def times(self) -> Sequence[float]:
        """All times, those of the first calls first."""
        return self.first.times + self.later.times

    @property
    def total_ns(self) -> float:
        """The time of all of them."""
        return self.first.total + self.later.total

    @property
    def median_ns(self) -> float:
        """The median of the later calls, or of the first if they are all; 0 without a time."""
        return self.later.median or self.first.median or 0.0

    @property
    def least_ns(self) -> float:
        """The shortest of the later calls, or of the first if they are all; 0 without a time."""
        return self.later.least or self.first.least or 0.0

    @property
    def gflops(self) -> float:
        """Billions of operations a second at best; 0 where the work or the time is not known."""
        return (self.record.flops or 0.0) / self.least_ns if self.least_ns else 0.0

    @property
    def gigabytes_per_second(self) -> float:
        """Billions of bytes a second at best; 0 where the traffic or the time is not known."""
        return (self.record.bytes or 0.0) / self.least_ns if self.least_ns else 0.0

    @property
    def is_on_gpu(self) -> bool:
        """Whether a GPU computed; its lines may hold the time of the submission alone."""
        return is_on_gpu(self.record)

    @property
    def is_product(self) -> bool:
        """Whether they multiply matrices, as convolutions do too."""
        operation = self.record.operation
        return operation in _PRODUCTS or "GEMM" in operation or "GEMV" in operation

    @property
    def operations_an_element(self) -> float:
        """Operations for each element that is read or written: below 2, a matrix is used for one vector.

        0 where they are not known. Of mixed types the weights count.
        """
        flops, traffic = self.record.flops, self.record.bytes
        dtypes = self.record.dtype.split(":")
        size = ELEMENT_BYTES.get(dtypes[len(dtypes) > 1])
        return flops / traffic * size if flops and traffic and size else 0.0

    @property
    def name(self) -> str:
        """Operation, shape and types, for people."""
        return " ".join(filter(None, (self.record.operation, self.record.shape, self.record.dtype)))


class Finder:
    """Looks for one thing. Its name is the finding's code, the first paragraph of its docstring describes it.

    Some add calls up by `key`; others override `add`, `add_many`, `take` or `follow`, or look at `calls`.
    machine: the one that the trace is of, where that is known.
    WANTS: of KINDS, those that it is given; asking each of a million records twenty times costs.
    WHY, ACTION: those of its findings; TEXTS: these and others, as in findings/texts.toml. LINES: example
    lines for each sum.
    GOES_FIRST: its findings come before all others, since these rest on it.
    calls, all_count, all_ns: the counted calls of the trace, at the end.
    """

    WANTS: frozenset[str] = frozenset()
    WHY = ACTION = ""
    TEXTS: Mapping[str, str] = {}
    LINES = 2
    GOES_FIRST = False

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.calls: Sequence[Calls] = ()
        self.all_count = 0
        self.all_ns = 0.0
        self.sums: defaultdict[Any, Sum] = defaultdict(lambda: Sum(self.LINES))
        self.begin()

    def __init_subclass__(cls) -> None:
        """Give a finder its texts, by its code."""
        cls.TEXTS = table("tracing/findings/texts.toml").get(cls.code(), {})
        cls.WHY, cls.ACTION = cls.TEXTS.get("why", cls.WHY), cls.TEXTS.get("action", cls.ACTION)

    @classmethod
    def code(cls) -> str:
        """Return the finding's code: "first-calls" for FirstCalls."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def begin(self) -> None:
        """Prepare what else is collected."""

    def key(self, record: Record) -> Hashable | None:
        """Return which of `sums` a record belongs to, None for none."""
        del record
        return None

    def add(self, record: Record) -> None:
        """Take in one record."""
        self.take(record, 1, record.duration_ns or 0.0)

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Take in calls that are equal to one that was added; start_ns is that of the last."""
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

    def time_of(self, calls: Sum) -> str:
        """Return the time of calls for people: "3 ms, 25% of the time"."""
        return f"{took(calls.total_ns)}, {percent(self.share(calls.total_ns))} of the time"

    def lines_of(self, *sums: Sum) -> tuple[str, ...]:
        """Return the example lines of several sums."""
        return tuple(line for calls in sums for line in calls.lines)

    def finding(self, severity: str, seen: str, calls: Sum | None = None, **fields: Any) -> Finding:
        """Return a finding of this code; fields: as in Finding, by default those of the calls."""
        of_calls: dict[str, Any] = {}
        if calls is not None:
            of_calls = {"count": calls.count, "total_ns": calls.total_ns, "evidence": calls.lines}
            of_calls["share"] = self.share(calls.total_ns)
        texts = {"severity": severity, "seen": seen, "why": self.WHY, "action": self.ACTION}
        return Finding(code=self.code(), **{**texts, **of_calls, **fields})


@cache
def finders() -> dict[str, type[Finder]]:
    """Return the finders by their codes: those of the files in findings/, and of other distributions."""
    values = [
        value
        for name in registry.names(REGISTRY)
        for value in vars(registry.load(REGISTRY, name)).values()
        if isinstance(value, type) and issubclass(value, Finder) and value is not Finder
    ]
    return {finder.code(): finder for finder in sorted(values, key=lambda finder: finder.code())}


def shown(record: Record) -> str:
    """Return a record's line as evidence, cut where it is very long."""
    line = record.raw
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def is_on_gpu(record: Record) -> bool:
    """Return whether a call of oneDNN ran on a GPU."""
    return "gpu" in str(getattr(getattr(record, "signature", None), "engine", ""))


def pool_of(record: Record, of_onednn: int = 0) -> int:
    """Return how many threads a call may use: as MKL prints it, or as oneDNN's header did; 0: not known."""
    if not isinstance(record, MklCall):
        return 0 if isinstance(record, Ukernel) else of_onednn
    state = record.signature.state
    counts = (state.get(name, "") for name in _POOLS)
    return max((whole_number(count) or 0 for count in counts), default=0)


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


def by_share(share: float, *, high: float = inf, medium: float = inf) -> str:
    """Return the severity of something that takes this share of the time."""
    if share >= high:
        return "high"
    return "medium" if share >= medium else "low"

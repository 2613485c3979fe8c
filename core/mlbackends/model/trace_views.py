"""The views of a trace: records that renderers print.

Units: nanoseconds, bytes, floating-point operations; shares are of 1; rates are billions a second.
`None` is "not known".
"""

from msgspec import Struct


class View(Struct, frozen=True, kw_only=True, tag_field="view", tag=str.lower):
    """What all views have: as JSON they are distinguished by "view"."""


class SummaryRow(Struct, frozen=True, kw_only=True):
    """The calls that are equal in what a summary is grouped by; mean_ns is None where no time is known.

    values: one for each field of Summary.by. share: of the time of all calls; cumulative_share: of this
    row and those above it. deviation: the standard deviation over the mean. gflops,
    gigabytes_per_second: over the calls whose work, or traffic, and time are known.
    """

    values: tuple[str, ...]
    count: int
    total_ns: float = 0.0
    share: float = 0.0
    cumulative_share: float = 0.0
    mean_ns: float | None = None
    median_ns: float | None = None
    min_ns: float | None = None
    max_ns: float | None = None
    deviation: float | None = None
    gflops: float | None = None
    gigabytes_per_second: float | None = None


class Uncounted(Struct, frozen=True, kw_only=True):
    """Calls whose time is not in the totals, and the reason."""

    reason: str
    count: int
    total_ns: float


class Summary(View, frozen=True, kw_only=True):
    """Calls in groups, those that took longest first.

    by: the fields that they are grouped by. groups: how many there are; `rows` may be fewer, and what
    those left out took is `others`. uncounted: calls that a total would count twice, and calls that
    are not work.
    """

    by: tuple[str, ...]
    count: int = 0
    total_ns: float = 0.0
    groups: int = 0
    rows: tuple[SummaryRow, ...] = ()
    others: SummaryRow | None = None
    uncounted: tuple[Uncounted, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """Something to look at.

    code: stable, from the registry "tracing.findings". severity: "high", "medium", "low" or "note".
    seen, why, action: sentences: what was seen, why it hurts, what to do. evidence: lines of the trace,
    or sums over them. total_ns: the time that it is about; share: of the time of all counted calls, None
    where that has no meaning.
    """

    code: str
    severity: str
    seen: str
    why: str = ""
    action: str = ""
    evidence: tuple[str, ...] = ()
    count: int = 0
    total_ns: float = 0.0
    share: float | None = None


class Findings(View, frozen=True, kw_only=True):
    """All that was found: what makes times unreliable, then the worst. `parameters`: what was looked for."""

    codes: tuple[str, ...]
    findings: tuple[Finding, ...] = ()


class Refusal(Struct, frozen=True, kw_only=True):
    """Why oneDNN did not take an implementation. place: where in its source; "" if not known."""

    implementation: str
    reason: str
    place: str
    count: int


class Refused(Struct, frozen=True, kw_only=True):
    """The refusals of one operation, in the order in which oneDNN tried: what is faster comes first.

    chosen: the implementations that oneDNN chose in the end, and how often they were made.
    """

    operation: str
    count: int
    refusals: tuple[Refusal, ...]
    chosen: tuple[tuple[str, int], ...] = ()


class DispatchView(View, frozen=True, kw_only=True, tag="dispatch"):
    """The refusals by operation. left_out: how many kinds of refusal were too many to keep."""

    operations: tuple[Refused, ...] = ()
    count: int = 0
    left_out: int = 0


class Roof(Struct, frozen=True, kw_only=True):
    """The speeds of a machine that nothing on it exceeds: of arithmetic in float32, and of memory.

    threads: how many reached them together; 0: not known. by: how they were measured.
    """

    gflops: float
    gigabytes_per_second: float
    threads: int = 0
    by: str = ""


class RooflinePoint(Struct, frozen=True, kw_only=True):
    """Equal calls: their operations a byte of the least traffic, and what they reached."""

    operation: str
    shape: str
    dtype: str
    implementation: str
    count: int
    total_ns: float
    intensity: float
    gflops: float
    gigabytes_per_second: float


class Roofline(View, frozen=True, kw_only=True):
    """Work against traffic, the longest first. left_out: calls whose sizes or times are not known.

    roof: the machine's, where the trace is of the one that was measured.
    """

    points: tuple[RooflinePoint, ...] = ()
    groups: int = 0
    left_out: int = 0
    roof: Roof | None = None


class Change(Struct, frozen=True, kw_only=True):
    """Equal calls in two traces.

    verdict: "slower", "faster", "same", "new" (only after), "gone" (only before) or "noise" (beyond the
    threshold, but too short to count). ratio: after over before, by the measure of the Difference.
    """

    values: tuple[str, ...]
    verdict: str
    before: SummaryRow | None = None
    after: SummaryRow | None = None
    ratio: float | None = None
    implementation_before: str = ""
    implementation_after: str = ""


class SettingChange(Struct, frozen=True, kw_only=True):
    """A setting of a library that differs between two traces.

    name: such as "oneDNN threads". before, after: all values that were seen.
    """

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class Difference(View, frozen=True, kw_only=True):
    """Two traces side by side, what changed most first.

    measure: "total", "mean", "median" or "min". threshold: the ratio from which on a call is slower or
    faster. ratio: of the whole time. failed: something is slower; a comparison in CI ends with 1.
    settings: versions, threads and instruction sets that differ, where both traces contain them.
    unsteady_before, unsteady_after: a sentence where the times of equal calls vary too much for ratios to
    mean much.
    """

    by: tuple[str, ...]
    measure: str
    threshold: float
    smallest_share: float
    before_ns: float = 0.0
    after_ns: float = 0.0
    before_count: int = 0
    after_count: int = 0
    ratio: float | None = None
    changes: tuple[Change, ...] = ()
    failed: bool = False
    settings: tuple[SettingChange, ...] = ()
    unsteady_before: str = ""
    unsteady_after: str = ""


AnyView = Summary | Findings | DispatchView | Roofline | Difference

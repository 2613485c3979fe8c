"""Two traces side by side: what became slower, what faster, what is new and what is gone."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.model.trace import Header, Info, MklCall, Primitive, Record
from mlbackends.model.trace_views import Change, Difference, SettingChange
from mlbackends.tracing import LIBRARIES
from mlbackends.tracing.finder import pool_of
from mlbackends.tracing.groups import Group, Groups
from mlbackends.tracing.viewing import begin

#: What the program requested: calls that differ in it, such as forward and backward, are compared separately.
BY = ("tracer", "operation", "shape", "dtype", "parameters")
MEASURES = ("total", "mean", "median", "min")
#: What is named only where the better source is missing.
_FALLBACKS = {"oneDNN kernels": "oneDNN instruction set"}


class _Trace(Groups):
    """Groups one trace, and collects the libraries' settings, with the time spent under each value."""

    def __init__(self, by: tuple[str, ...]) -> None:
        super().__init__(by)
        self.settings: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._times: Any = begin("findings", codes=("unsteady-times",))

    def add_many(self, record: Record, count: int, durations: Sequence[float]) -> None:
        """Add equal calls, or lines that are none."""
        super().add_many(record, count, durations)
        for name, value in _settings(record):
            self.settings[name][value] += sum(durations)
        if record.counted and durations:
            is_own = record.duration_ns == durations[0]
            self._times.add(record if is_own else structs.replace(record, duration_ns=durations[0]))
            if len(durations) > 1:
                self._times.add_many(record, len(durations) - 1, durations[1:])

    @property
    def unsteady(self) -> str:
        """How unsteady the times are, in a sentence; "" where they are not."""
        return "".join(finding.seen for finding in self._times.result().findings)

    def values(self, name: str) -> tuple[str, ...]:
        """Return the values of a setting; of the kernels only those that took most of the time."""
        values: dict[str, float] = self.settings.get(name, {})
        if name in _FALLBACKS and values:
            return (max(values, key=lambda value: (values[value], value)),)
        return tuple(sorted(values))


class Collector(_Trace):
    """Groups two traces: the first in `before`, the second in itself.

    by: fields; without the implementation, so that a call is found again when another version takes
    another one. measure: what is compared, see MEASURES. threshold: from which ratio on a call is slower,
    or below whose reciprocal faster; 1.1 is ten percent. smallest_share: calls that take less of the time
    in both traces are noise. whole_threshold: from which ratio of the whole times it fails too; 0: never.
    """

    def __init__(
        self,
        by: tuple[str, ...] = BY,
        measure: str = "median",
        threshold: float = 1.1,
        smallest_share: float = 0.01,
        whole_threshold: float = 0.0,
    ) -> None:
        if measure not in MEASURES:
            raise UnknownName("measure", measure, MEASURES)
        for limit in (threshold, whole_threshold or threshold):
            if not 1 <= limit < float("inf"):
                raise BadInput(f"a threshold of {limit} is not valid", "such as 1.1, ten percent")
        if not 0 <= smallest_share <= 1:
            raise BadInput(f"a share of {smallest_share} is not valid", "from 0 to 1")
        self._measure, self._threshold = measure, threshold
        self._smallest, self._whole_threshold = smallest_share, whole_threshold
        super().__init__(by)
        self.before = _Trace(by)

    def result(self) -> Difference:
        """Return the changes, those that cost most first."""
        before = self.before
        changes = [
            self._change(values, before.groups.get(values), self.groups.get(values))
            for values in dict.fromkeys([*before.groups, *self.groups])
        ]
        moved = {
            change.values: abs(
                (change.after.total_ns if change.after else 0.0)
                - (change.before.total_ns if change.before else 0.0)
            )
            for change in changes
        }
        changes.sort(key=lambda change: (_ORDER.index(change.verdict), -moved[change.values], change.values))
        ratio = self.total_ns / before.total_ns if before.total_ns else None
        slower = any(change.verdict == "slower" for change in changes)
        settings = []
        for name in before.settings:
            values, others = before.values(name), self.values(name)
            better = _FALLBACKS.get(name, "")
            is_replaced = before.values(better) and self.values(better)
            if others and values != others and not is_replaced:
                settings.append(SettingChange(name=name, before=values, after=others))
        whole = bool(self._whole_threshold and ratio and ratio >= self._whole_threshold)
        return Difference(
            by=self.by,
            measure=self._measure,
            threshold=self._threshold,
            smallest_share=self._smallest,
            before_ns=before.total_ns,
            after_ns=self.total_ns,
            before_count=before.count,
            after_count=self.count,
            ratio=ratio,
            changes=tuple(changes),
            failed=slower or whole,
            settings=tuple(settings),
            unsteady_before=before.unsteady,
            unsteady_after=self.unsteady,
        )

    def _change(self, values: tuple[str, ...], before: Group | None, after: Group | None) -> Change:
        left = before.row(values, self.before.total_ns) if before else None
        right = after.row(values, self.total_ns) if after else None
        ratio, verdict = None, "new" if right else "gone"
        if left and right:
            verdict = "same"
            old, new = (getattr(row, f"{self._measure}_ns") for row in (left, right))
            ratio = new / old if old and new is not None else None
            if ratio is not None and not 1 / self._threshold < ratio < self._threshold:
                verdict = "slower" if ratio >= self._threshold else "faster"
                if max(left.share, right.share) < self._smallest:
                    verdict = "noise"
        return Change(
            values=values,
            verdict=verdict,
            before=left,
            after=right,
            ratio=ratio,
            implementation_before=before.record.implementation if before else "",
            implementation_after=after.record.implementation if after else "",
        )


def _settings(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the settings of its library that a record contains: name and value."""
    found: dict[str, str] = {}
    if isinstance(record, Header):
        found = {f"{LIBRARIES.get(record.tracer, record.tracer)} version": record.version}
        if record.tracer == "mkl":
            found["MKL threading layer"] = record.facts.get("threading", "")
            found["MKL processor"] = record.facts.get("processor", "")
    elif isinstance(record, Info) and record.topic == "cpu":
        words = {"threads": "nthr", "runtime": "runtime", "instruction set": "isa"}
        found = {f"oneDNN {name}": record.values.get(word, "") for name, word in words.items()}
    elif isinstance(record, MklCall):
        found = {"MKL threads": str(pool_of(record) or "")}
        found["MKL branch (CNR)"] = record.signature.state.get("CNR", "")
    elif isinstance(record, Primitive) and record.counted:
        found = {"oneDNN kernels": record.isa}
    return ((name, value) for name, value in found.items() if value)


_ORDER = ("slower", "faster", "new", "gone", "noise", "same")

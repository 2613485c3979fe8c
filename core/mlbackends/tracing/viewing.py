"""Looking at a trace: records go in one by one, a view comes out. Each view is a file in views/.

view("summary", records, by=("operation",))
views(records, {"summary": {}, "findings": {}})        several from one walk: a pipe can be read only once
from_aggregate(aggregate, {"summary": {}})             the fast way, for views that need no order
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mlbackends.model import registry
from mlbackends.model.errors import BadInput
from mlbackends.model.trace import Record
from mlbackends.model.trace_views import AnyView, Difference

if TYPE_CHECKING:
    from mlbackends.tracing.aggregate import Aggregate, Together
    from mlbackends.tracing.walk import Walk

REGISTRY = "mlbackends.tracing.views"


class Collector(Protocol):
    """A view that is being made. It never keeps the records themselves, but few of them."""

    def add(self, record: Record) -> None:
        """Take in one record, of any kind."""

    def result(self) -> AnyView:
        """Return the view of what came in so far; more may follow (`--live`)."""


def begin(name: str, **options: Any) -> Collector:
    """Begin a view; options are those of its file's `Collector`.

    Raises UnknownName where there is no such view.
    """
    collector: Collector = registry.load(REGISTRY, name).Collector(**options)
    return collector


def view(name: str, records: Iterable[Record], **options: Any) -> AnyView:
    """Return one view of records."""
    return views(records, {name: options})[name]


def views(records: Iterable[Record], wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, AnyView]:
    """Return several views of records that are walked through once."""
    collectors = {name: begin(name, **options) for name, options in wanted.items()}
    adders = [each.add for each in collectors.values()]
    for record in records:
        for add in adders:
            add(record)
    return {name: each.result() for name, each in collectors.items()}


def takes_aggregates(name: str) -> bool:
    """Tell whether a view can be made of an aggregate; others need the order of the calls."""
    return hasattr(registry.load(REGISTRY, name).Collector, "add_many")


def from_aggregate(
    aggregate: "Aggregate | Together",
    wanted: Mapping[str, Mapping[str, Any]],
    keep: Callable[[Record], bool] | None = None,
) -> dict[str, AnyView]:
    """Return several views of calls that were added up already: twenty times as fast.

    keep: which calls, such as a `filters.Where` that is `constant`. Raises BadInput for a view that
    needs the order of the calls.
    """
    for name in wanted:
        if not takes_aggregates(name):
            raise BadInput(f"the view {name} needs every line, not their sums")
    collectors: dict[str, Any] = {name: begin(name, **options) for name, options in wanted.items()}
    for group in aggregate.groups:
        record = group.record
        if keep is None or keep(record):
            for each in collectors.values():
                each.add_many(record, group.count, group.durations)
    for note in aggregate.notes:
        if keep is None or keep(note.record):
            for each in collectors.values():
                each.add_many(note.record, note.count, ())
    return {name: each.result() for name, each in collectors.items()}


def takes_repeats(name: str) -> bool:
    """Tell whether a view can be made by a walk through logs in which few lines are read in full."""
    return takes_aggregates(name) or hasattr(registry.load(REGISTRY, name).Collector, "add_more")


def from_walk(
    logs: Callable[["Walk"], None],
    wanted: Mapping[str, Mapping[str, Any]],
    keep: Callable[[Record], bool],
) -> dict[str, AnyView]:
    """Return several views by one walk in which few lines are read in full: several times as fast.

    logs: walks through them. keep: which records, such as a `filters.Where` that is `constant`.
    """
    from mlbackends.tracing.walk import Walk

    collectors = {name: begin(name, **options) for name, options in wanted.items()}
    logs(Walk([_Walker(each) for each in collectors.values()], keep))
    return {name: each.result() for name, each in collectors.items()}


class _Walker:
    """A view on a walk; those that take sums as they are need no order."""

    def __init__(self, collector: Any) -> None:
        self.add = collector.add
        self.add_more = getattr(collector, "add_more", None) or collector.add_many
        self.follow = getattr(collector, "follow", lambda _: ())


def difference(before: Iterable[Record], after: Iterable[Record], **options: Any) -> Difference:
    """Return how two traces differ; options are those of the view `diff`."""
    found: Difference = registry.load(REGISTRY, "diff").compare(before, after, **options)
    return found


def difference_of_aggregates(
    before: "Aggregate",
    after: "Aggregate",
    keep: Callable[[Record], bool] | None = None,
    **options: Any,
) -> Difference:
    """Return the same of calls that were added up already."""
    collector = registry.load(REGISTRY, "diff").Collector(**options)
    for aggregate, groups in ((before, collector.before), (after, collector.after)):
        for group in aggregate.groups:
            record = group.record
            if keep is None or keep(record):
                groups.add_many(record, group.count, group.durations)
    found: Difference = collector.result()
    return found

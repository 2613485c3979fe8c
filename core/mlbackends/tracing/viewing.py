"""Looking at a trace: records go in one by one, a view comes out. Each view is a file in views/.

view("summary", records, by=("operation",))
views(records, {"summary": {}, "findings": {}})        several from one walk: a pipe can be read only once
from_aggregates([aggregate], {"summary": {}})          the fast way, for views that need no order
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any, Protocol

from mlbackends.base import registry
from mlbackends.model.trace import Call, Record
from mlbackends.model.trace_views import AnyView, Difference
from mlbackends.tracing.aggregate import Aggregate

REGISTRY = "mlbackends.tracing.views"
#: The views that are wanted, each with the options of its collector.
Options = Mapping[str, Mapping[str, Any]]


class Collector(Protocol):
    """A view that is being made. It never keeps the records themselves, but few of them.

    One that needs no order also has `add_many`, and one that needs little of it `add_more`: see `Walk`.
    """

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


def views(records: Iterable[Record], requested: Options) -> dict[str, AnyView]:
    """Return several views of records that are walked through once."""
    collectors = {name: begin(name, **options) for name, options in requested.items()}
    adders = [each.add for each in collectors.values()]
    for record in records:
        for add in adders:
            add(record)
    return {name: each.result() for name, each in collectors.items()}


def accepts_aggregates(name: str) -> bool:
    """Tell whether a view can be made of an aggregate; others need the order of the calls."""
    return hasattr(registry.load(REGISTRY, name).Collector, "add_many")


def accepts_repeats(name: str) -> bool:
    """Tell whether a view can be made by a `Walk`, in which few lines are read in full."""
    collector = registry.load(REGISTRY, name).Collector
    return any(hasattr(collector, each) for each in ("add_many", "add_more", "follow_lines"))


def from_aggregates(
    aggregates: Iterable[Aggregate],
    requested: Options,
    is_chosen: Callable[[Record], bool] = lambda _: True,
) -> dict[str, AnyView]:
    """Return several views of calls that were added up already: twenty times as fast.

    requested: views that accept aggregates. is_chosen: which calls; equal calls must have equal answers.
    """
    collectors: dict[str, Any] = {
        name: begin(name, **options) for name, options in requested.items()
    }
    for aggregate in aggregates:
        _add_sums(aggregate, [each.add_many for each in collectors.values()], is_chosen)
    return {name: each.result() for name, each in collectors.items()}


def difference(
    before: Iterable[Record] | Aggregate,
    after: Iterable[Record] | Aggregate,
    is_chosen: Callable[[Record], bool] = lambda _: True,
    **options: Any,
) -> Difference:
    """Return how two traces differ; options are those of the view `diff`.

    is_chosen: as in from_aggregates; lines that are no calls are always used.
    """

    def is_shown(record: Record) -> bool:
        return not isinstance(record, Call) or is_chosen(record)

    collector = registry.load(REGISTRY, "diff").Collector(**options)
    for trace, groups in ((before, collector.before), (after, collector)):
        if isinstance(trace, Aggregate):
            _add_sums(trace, [groups.add_many], is_shown)
        else:
            for record in filter(is_shown, trace):
                groups.add(record)
    found: Difference = collector.result()
    return found


def _add_sums(
    aggregate: Aggregate, adders: list[Callable[..., None]], is_chosen: Callable[[Record], bool]
) -> None:
    for group in chain(aggregate.groups, aggregate.notes):
        record = group.record
        if is_chosen(record):
            for add_many in adders:
                add_many(record, group.count, group.durations)

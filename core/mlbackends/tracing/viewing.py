"""Looking at a trace: records go in one by one, a view comes out. Each view is a file in views/.

view("summary", records, by=("operation",))
views(records, {"summary": {}, "findings": {}})        several at once: a pipe can be read only once
SavedTrace("run.log").walk([begin("summary")])         for large logs: see `Walk`
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from mlbackends.base import registry
from mlbackends.base.display import Displayed
from mlbackends.model.trace import Record
from mlbackends.model.trace_views import AnyView
from mlbackends.tracing.sources import Source
from mlbackends.tracing.walk import Walk

REGISTRY = "mlbackends.tracing.views"
#: The views that are wanted, each with the options of its collector.
Options = Mapping[str, Mapping[str, Any]]


class Collector(Protocol):
    """A view that is being made; it keeps only few of the records. For more methods see `Walk`."""

    def add(self, record: Record) -> None:
        """Take in one record, of any kind."""

    def result(self) -> AnyView:
        """Return the view of what came in so far; more may follow (`--follow`)."""


def begin(name: str, **options: Any) -> Collector:
    """Begin a view; options are those of its file's `Collector`.

    Raises UnknownName for an unknown view.
    """
    collector: Collector = registry.load(REGISTRY, name).Collector(**options)
    return collector


def view(name: str, records: Iterable[Record], **options: Any) -> AnyView:
    """Return one view of records."""
    return views(records, {name: options})[name]


def views(records: Iterable[Record], requested: Options) -> dict[str, AnyView]:
    """Return several views of records that are walked through once."""
    collectors = {name: begin(name, **options) for name, options in requested.items()}
    adders = [collector.add for collector in collectors.values()]
    for record in records:
        for add in adders:
            add(record)
    return {name: collector.result() for name, collector in collectors.items()}


class SavedTrace(Displayed):
    """A log in a file, as a notebook shows it. path: as `backends trace show` accepts it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def glance(self) -> str:
        """Return its name."""
        return f"trace {self.path}"

    def walk(self, collectors: Sequence[Any]) -> None:
        """Give its records to collectors."""
        Walk(collectors).add(Source(self.path).chunks())

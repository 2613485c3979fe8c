"""Several versions of a library printed lines: a process has several copies, or the log has several runs."""

from mlbackends.model.trace import Header, Record
from mlbackends.tracing import LIBRARIES, finder
from mlbackends.tracing.finder import Found

_MOST = 100


class Finder(finder.Finder):
    """Keeps the header of each version."""

    WANTS = frozenset(("notes",))
    WHY = (
        "each framework ships its own copy: caches and threads are not shared, and"
        " sums mix fast versions with slow ones"
    )
    ACTION = "group by process or source, or trace one framework at a time"
    LINES = 1

    def key(self, record: Record) -> tuple[str, str] | None:
        if isinstance(record, Header) and len(self.sums) < _MOST:
            return record.tracer, record.version
        return None

    def result(self) -> Found:
        for tracer in dict.fromkeys(tracer for tracer, _ in self.sums):
            versions = {key[1]: each for key, each in self.sums.items() if key[0] == tracer}
            if len(versions) > 1:
                yield self.finding(
                    "low",
                    f"{LIBRARIES.get(tracer, tracer)} printed lines in {len(versions)} versions:"
                    f" {', '.join(versions)}",
                    evidence=tuple(line for version in versions.values() for line in version.lines)[
                        :6
                    ],
                    count=len(versions),
                )

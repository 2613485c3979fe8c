"""More than one version of a library spoke: a process has several copies, or the log several runs."""

from mlbackends.model.trace import Header, Record
from mlbackends.model.trace_views import Finding
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Whole

_LIBRARIES = {"mkl": "MKL", "onednn": "oneDNN"}


class Finder(finder.Finder):
    """Keeps the header of each version."""

    WANTS = frozenset(("notes",))

    def begin(self) -> None:
        self._headers: dict[str, dict[str, str]] = {}

    def take(self, record: Record, count: int, total_ns: float) -> None:
        if isinstance(record, Header):
            versions = self._headers.setdefault(record.tracer, {})
            if len(versions) < 50:
                versions.setdefault(record.version, record.raw)

    def result(self, whole: Whole) -> list[Finding]:
        """Return one for each library with several versions."""
        del whole
        return [
            self.finding(
                "low",
                f"{_LIBRARIES.get(tracer, tracer)} spoke in {len(versions)} versions:"
                f" {', '.join(versions)}",
                why=(
                    "frameworks bring copies of their own: caches and threads are not shared, and"
                    " sums mix fast versions with slow ones"
                ),
                action="group by process or source to tell them apart, or trace one framework at a time",
                evidence=tuple(versions.values())[:6],
                count=len(versions),
            )
            for tracer, versions in self._headers.items()
            if len(versions) > 1
        ]

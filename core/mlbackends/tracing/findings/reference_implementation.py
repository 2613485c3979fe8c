"""Time went into oneDNN's reference or plain implementations, which are right but slow."""

from mlbackends.model.trace import Primitive, Record
from mlbackends.tracing import finder
from mlbackends.tracing.finder import Found, by_share, percent, times, took

_MOST = 5


class Finder(finder.Finder):
    """Adds up the calls by operation and implementation."""

    ACTION = (
        "see why the faster ones refused: trace with --level dispatch and read the"
        " dispatch view; other types, layouts or attributes may be supported"
    )

    def key(self, record: Record) -> tuple[str, str, str] | None:
        if isinstance(record, Primitive) and record.slow_path:
            return record.operation, record.implementation, record.slow_path
        return None

    def result(self) -> Found:
        worst = sorted(self.sums.items(), key=lambda item: -item[1].total_ns)
        for (operation, implementation, word), calls in worst[:_MOST]:
            share = self.share(calls.total_ns)
            # A reference part inside a larger implementation may be a small part of its time.
            inside = word.endswith(" inside")
            yield self.finding(
                "low" if inside else by_share(share, high=0.1, medium=0.01),
                f"{times(calls.count, 'call')} of {operation} ran {implementation}:"
                f" {took(calls.total_ns)}, {percent(share)} of the time",
                calls,
                why=(
                    f"{word.removesuffix(' inside')!r} in the name means code without vector"
                    f" instructions{' (here: a part of the implementation)' if inside else ''},"
                    " often 10 to 100 times slower"
                ),
            )

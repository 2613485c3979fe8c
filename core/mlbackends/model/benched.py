"""The record of `backends sdpa bench`: how fast attention backends are compared with each other."""

from msgspec import Struct

from mlbackends.model.checked import CheckedProblem

SCHEMA = "backends.sdpa-bench/1"


class Ratio(Struct, frozen=True):
    """How many times as fast one backend is as another: the median over rounds in which both took turns.

    lower, upper: a quarter of the rounds were below, or above.
    """

    backend: str
    to: str
    median: float
    lower: float
    upper: float


class Change(Struct, frozen=True):
    """How many times as fast a backend is as in a saved run.

    Both are 0 where it was timed then, and did not run now.
    by_time: ratio of the median times. by_share: ratio of the shares of the peak, which was measured in the
    same run and depends less on how fast the machine was then; None if a run has no peak.
    """

    backend: str
    by_time: float
    by_share: float | None = None


class BenchedProblem(Struct, frozen=True):
    """One problem: what was computed and timed, how the backends compare, and what has changed.

    least_bytes: of inputs and result, each moved once. length: of the keys. kind: the words of the
    problem without its lengths, which are what a picture is drawn over.
    """

    checked: CheckedProblem
    least_bytes: int
    length: int
    kind: str
    ratios: tuple[Ratio, ...] = ()
    changes: tuple[Change, ...] = ()

    def ratio(self, backend: str, to: str) -> Ratio | None:
        """Return how two backends compare; None where they were not timed together."""
        found = (ratio for ratio in self.ratios if (ratio.backend, ratio.to) == (backend, to))
        return next(found, None)


class Benched(Struct, frozen=True):
    """The answer to `backends sdpa bench`.

    bandwidth_bytes_per_second: of memory, None where it was not measured; bandwidth_by: how it was.
    """

    schema: str
    tool: str
    created: str
    processor: str
    threads: int
    rounds: int
    problems: tuple[BenchedProblem, ...]
    bandwidth_bytes_per_second: float | None = None
    bandwidth_by: str = ""

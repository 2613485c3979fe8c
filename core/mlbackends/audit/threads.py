"""Threads as hazards read them: the CPUs that variables bind them to, and how many the runtimes start.

Sources: GNU libgomp manual, GOMP_CPU_AFFINITY; OpenMP API 5.2, 21.1.6 OMP_PLACES and 21.1.7
OMP_PROC_BIND; Intel oneAPI compiler guide, "Thread Affinity Interface".
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from mlbackends.audit.environment import is_off
from mlbackends.audit.hazard import ReportView
from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import MOST_OPENMP_CPUS, parse_openmp_list
from mlbackends.model.records import FactValue

_COUNTED = pattern(r"(?P<first>\d{1,6})(?::(?P<count>\d{1,6})(?::(?P<stride>-?\d{1,6}))?)?")
_PLACE = re.compile(r"\s*\{([^{}]*)\}\s*(?::\s*(\d{1,6})\s*(?::\s*(-?\d{1,6})\s*)?)?(?:,|$)")
_THREADS = re.compile(r"threads\s*\(\s*(\d{1,6})\s*\)", re.IGNORECASE)
_LISTED = re.compile(r"proclist=\[([^\]]*)\]", re.IGNORECASE)
_TOGETHER = ("master", "primary")

_OWN_VARIABLES = frozenset({"MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS"})
#: Runtimes that start that many threads and keep them; the others only report a count to programs.
_POOLS = ("OpenMP", "OpenBLAS", "MKL", "torch")


class Bound(NamedTuple):
    """A variable, its value, and the CPUs that it binds to; of those only the number may be known."""

    variable: str
    value: str
    cpus: frozenset[int]
    number: int

    def within(self, allowed: frozenset[int]) -> int:
        """Return to how many CPUs it binds among those that the process may run on."""
        return len(self.cpus & allowed) if self.cpus and allowed else self.number


def bound(variables: Mapping[str, str]) -> list[Bound]:
    """Return what binds threads to CPUs that can be counted; what a runtime refuses binds nothing.

    variables: those that are set. Of GNU's own and OpenMP's the latter goes first, and
    OMP_PROC_BIND=false undoes both.
    """
    cpus: dict[str, frozenset[int]] = {}
    policy = variables.get("OMP_PROC_BIND", "").lower().split(",")[0].strip()
    if not is_off(policy):
        if places := _places(variables.get("OMP_PLACES", "")):
            # All of them, or the one of the first thread.
            is_one = policy in _TOGETHER
            cpus["OMP_PLACES"] = max(places, key=len) if is_one else frozenset().union(*places)
        elif "OMP_PLACES" not in variables:
            if policy in _TOGETHER:
                # Without OMP_PLACES a place is one hardware thread, or one core.
                cpus["OMP_PROC_BIND"] = frozenset({-1})
            else:
                words = variables.get("GOMP_CPU_AFFINITY", "").replace(",", " ").split()
                cpus["GOMP_CPU_AFFINITY"] = parse_openmp_list(words)
    affinity = variables.get("KMP_AFFINITY", "")
    listed = _LISTED.search(affinity)
    if listed and "explicit" in affinity.lower():
        cpus["KMP_AFFINITY"] = parse_openmp_list([part for part in re.split(r"[\s,{}]+", listed[1]) if part])
    return [
        # Negative numbers are CPUs that the runtime chooses.
        Bound(name, variables[name], frozenset() if min(own) < 0 else own, len(own))
        for name, own in cpus.items()
        if own
    ]


def _places(text: str) -> list[frozenset[int]]:
    """Return the places of OMP_PLACES; [] where they cannot be counted, as cores cannot."""
    if named := _THREADS.fullmatch(text):
        # The runtime chooses which: they get negative numbers.
        return [frozenset({-number}) for number in range(1, min(int(named[1]), MOST_OPENMP_CPUS) + 1)]
    places: list[frozenset[int]] = []
    at = 0
    while at < len(text):
        one = _PLACE.match(text, at)
        parts = [_COUNTED.fullmatch(part.replace(" ", "")) for part in one[1].split(",")] if one else []
        cpus: set[int] = set()
        for part in parts:
            if part is None or int(part["count"] or 1) > MOST_OPENMP_CPUS:
                return []
            steps = range(int(part["count"] or 1))
            cpus |= {int(part["first"]) + step * int(part["stride"] or 1) for step in steps}
        cpus = {cpu for cpu in cpus if cpu >= 0}
        if one is None or not cpus:
            return []
        count, stride = int(one[2] or 1), int(one[3] or 1)
        if count * len(cpus) > MOST_OPENMP_CPUS or len(places) > MOST_OPENMP_CPUS:
            return []
        places += [frozenset(cpu + step * stride for cpu in cpus) for step in range(count)]
        at = one.end()
    return [valid for place in places if (valid := frozenset(cpu for cpu in place if cpu >= 0))]


class ThreadPools(Struct, frozen=True):
    """The CPUs that this process may use, what limits them, and the runtimes that use more.

    cpus: a whole number, at least 1. exact: the same with the CPU quota not rounded. because: the limit that
    decides, a key of CPU_LIMITS.
    pools: the threads of each runtime that starts more than that. counted: the number that each Python
    function returns, if it is more. variables: those that set the pools' threads.
    """

    cpus: int
    exact: float
    because: str
    pools: dict[str, int]
    counted: dict[str, int]
    variables: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command that limits each pool to the usable CPUs."""
        return " ".join(("export", *(f"{name}={self.cpus}" for name in self.variables)))

    @property
    def evidence(self) -> dict[str, FactValue]:
        """What was seen, by dotted name."""
        return {
            "limits.effective_cpus": self.cpus,
            "limits.effective_cpus_because": self.because,
            **{
                f"limits.threads_expected.{name}.cpus": cpus
                for name, cpus in (self.pools | self.counted).items()
            },
        }


def thread_pools(report: ReportView) -> ThreadPools:
    """Compare each runtime's threads with the CPUs that affinity, cpuset and CPU quota leave.

    Raises NotReported if the report lacks the number of usable CPUs.
    """
    cpus = int(report.need("limits.effective_cpus"))
    expected = {row["runtime"]: int(row["cpus"]) for row in report.need("limits.threads_expected")}
    over = {str(name): count for name, count in expected.items() if count > cpus}
    has_threads = report.fact("limits.process_threads", cpus + 1) > cpus  # with --pid they are counted
    # A runtime with its own variable ignores OpenMP's.
    causes = {
        str(row["because"]).partition(" is ")[0]
        for row in report.need("limits.threads_expected")
        if row["runtime"] in _POOLS and row["runtime"] in over
    }
    return ThreadPools(
        cpus,
        float(report.fact("limits.effective_cpus_exact", cpus)),
        str(report.need("limits.effective_cpus_because")),
        {name: over[name] for name in _POOLS if name in over and has_threads},
        {name: count for name, count in over.items() if name.startswith("os.")},
        ("OMP_NUM_THREADS", *sorted(causes & _OWN_VARIABLES)),
    )


def listed(counts: dict[str, int], verb: str) -> str:
    """Return names with their counts, and a verb: "OpenMP (16), MKL (8) start"."""
    names = ", ".join(f"{name} ({count})" for name, count in counts.items())
    return f"{names} {verb}{'s' * (len(counts) == 1)}"

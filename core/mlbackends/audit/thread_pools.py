"""How many threads the runtimes take, held to the CPUs that are left for them."""

from msgspec import Struct

from mlbackends.audit.known import Known
from mlbackends.model.records import FactValue

_POOLS = ("OpenMP", "OpenBLAS", "MKL", "torch")
"""Runtimes that start so many threads and keep them; the others only count for programs."""

WHAT = {
    "affinity": "the affinity mask",
    "cpuset": "the cpuset",
    "quota": "the CPU quota",
    "online": "the machine",
}


class ThreadPools(Struct, frozen=True):
    """The CPUs that are left, what leaves them, and who takes more.

    cpus: whole ones, 1 at least. exact: the same with the quota not rounded. because: a key of WHAT.
    pools: the threads of each runtime that starts more than there are CPUs. counted: what each
    function of Python returns that counts more.
    """

    cpus: int
    exact: float
    because: str
    pools: dict[str, int]
    counted: dict[str, int]

    @property
    def evidence(self) -> dict[str, FactValue]:
        """What was seen, by dotted name."""
        return {
            "limits.effective_cpus": self.cpus,
            "limits.effective_cpus_because": self.because,
            **{
                f"limits.beliefs: {name}": cpus
                for name, cpus in (self.pools | self.counted).items()
            },
        }


def thread_pools(known: Known) -> ThreadPools:
    """Return them. Raises NotTold where the report does not say how many CPUs are left."""
    cpus = int(known.need("limits.effective_cpus"))
    beliefs = {belief["runtime"]: int(belief["cpus"]) for belief in known.need("limits.beliefs")}
    over = {str(name): count for name, count in beliefs.items() if count > cpus}
    return ThreadPools(
        cpus,
        float(known.fact("limits.effective_cpus_exact", cpus)),
        str(known.need("limits.effective_cpus_because")),
        {name: over[name] for name in _POOLS if name in over},
        {name: count for name, count in over.items() if name.startswith("os.")},
    )


def listed(counts: dict[str, int]) -> str:
    """Return names with their counts: "OpenMP (16), MKL (8)"."""
    return ", ".join(f"{name} ({count})" for name, count in counts.items())

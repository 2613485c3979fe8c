"""The machine that a trace is of, where that is known: what findings compare the trace with."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from mlbackends.cpu import get_cpu_capability
from mlbackends.host.system.cgroups import CPU_LIMITS
from mlbackends.model.records import Presence
from mlbackends.model.trace_views import Roof
from mlbackends.survey import survey


class Machine(Struct, frozen=True, kw_only=True):
    """A machine; what is not known is "", 0 or None.

    capability: the level of CPU kernels, as the fact `cpu.capability` has it. vendor: as `cpu.vendor`.
    cpus: how many threads run at once within affinity, cpuset and quota, a fraction by a quota;
    because: what sets that, as `limits.effective_cpus_because`. cores: of these CPUs, those that a
    library takes that starts one thread a core; on a hybrid processor those of the fastest kind.
    roof: the speeds that were measured.
    """

    capability: str = ""
    vendor: str = ""
    cpus: float = 0.0
    because: str = ""
    cores: int = 0
    roof: Roof | None = None

    @property
    def cpus_left(self) -> str:
        """How many CPUs there are and what leaves them, for people: "the CPU quota leaves 4 CPUs"."""
        verb = "leaves" if self.because in CPU_LIMITS and self.because != "online" else "has"
        count = f"{self.cpus:g} CPU" if self.cpus == 1 else f"{self.cpus:g} CPUs"
        return f"{CPU_LIMITS.get(self.because, 'the machine')} {verb} {count}"


UNKNOWN = Machine()


def this_machine(roof: Roof | None = None) -> Machine:
    """Return the machine that we run on, within the limits of this process."""
    probes = survey(("cpu", "limits"), depth=Presence.FOUND).probes
    return machine_of(probes["cpu"].facts, probes["limits"].facts, get_cpu_capability(), roof)


def machine_of(
    cpu: Mapping[str, Any],
    limits: Mapping[str, Any],
    capability: str = "",
    roof: Roof | None = None,
) -> Machine:
    """Return the machine that the facts of the probes `cpu` and `limits` describe."""
    cpus = float(limits.get("effective_cpus_exact") or limits.get("effective_cpus") or 0)
    kinds = [int(kind.get("cores") or 0) for kind in cpu.get("kinds") or ()]
    cores = int(cpus) // int(cpu.get("threads_per_core") or 1)
    return Machine(
        capability=capability,
        vendor=str(cpu.get("vendor", "")),
        cpus=cpus,
        because=str(limits.get("effective_cpus_because", "")),
        cores=min(cores, kinds[0]) if kinds and kinds[0] else cores,
        roof=roof,
    )

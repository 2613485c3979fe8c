"""Variables bind OpenMP threads to CPUs.

Told by:   environment: GOMP_CPU_AFFINITY, KMP_AFFINITY and OMP_PROC_BIND that bind, while
           LOCAL_WORLD_SIZE tells of several processes on this machine.
No alarm:  binding in a single process, which is what tuning guides advise; false, none, disabled.
"""

from collections.abc import Iterator

from mlbackends.audit.hazard import Symptom
from mlbackends.audit.known import Known
from mlbackends.audit.variables import settings
from mlbackends.model.audit import Severity

SEVERITY = Severity.WARNING
READS = ("environment",)
WHY = (
    "The first thread is bound to the first CPU when the library is loaded, and what is started from"
    " it inherits that: all processes of a launcher, and all workers of a data loader, may end up on"
    " the same CPU."
)
MEND = "Give each process CPUs of its own with numactl or taskset, and leave the threads unbound."
SOURCES = (
    "pytorch/pytorch#101850",
    "pytorch/pytorch#91989",
    "GNU libgomp manual, GOMP_CPU_AFFINITY",
)
_UNBOUND = ("false", "none", "disabled", "no", "0")
_VARIABLES = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND")


def symptoms(known: Known) -> Iterator[Symptom]:
    """Yield each variable that binds the threads of several processes alike."""
    told = settings(known)
    ranks = told.get("LOCAL_WORLD_SIZE", "")
    if not ranks or ranks == "1":
        return
    for name in _VARIABLES:
        value = told.get(name, "")
        if value and value.lower().split(",")[0] not in _UNBOUND:
            yield Symptom(
                f"{name} is {value[:80]!r}, and {ranks[:10]} processes on this machine read it: each"
                " binds its threads to the same CPUs",
                command=f"unset {name}",
                evidence={
                    f"environment.variables.{name}": value,
                    "environment.variables.LOCAL_WORLD_SIZE": ranks,
                },
            )

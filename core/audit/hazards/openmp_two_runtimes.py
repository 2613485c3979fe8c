"""Two OpenMP runtimes may meet in one process.

Told by:   the openmp probe's `conflict`: runtimes that libraries of one environment bring or need.
No alarm:  libomptarget and Intel's libiomp5_db are no runtimes; a copy that nothing here loads.
"""

from collections.abc import Iterator

from mlbackends.audit.hazard import Symptom, from_warning
from mlbackends.audit.known import Known
from mlbackends.model.audit import Severity

SEVERITY = Severity.WARNING
READS = ("openmp",)
WHY = (
    "Each runtime has threads of its own: a limit that is set in one does not hold in the other, and"
    " Intel's and LLVM's together may deadlock or give wrong results."
)
MEND = "Install all packages that compute from one channel, so that they share one runtime."
SOURCES = (
    "pytorch/pytorch#98836",
    "pytorch/pytorch#149422",
    "pytorch/pytorch#44282",
    "joblib/threadpoolctl#49",
)
WARNINGS = (("openmp", "conflict"),)


def symptoms(known: Known) -> Iterator[Symptom]:
    """Yield one for each meeting that the probe foresees."""
    copies = [library.path for library in known.libraries("openmp")]
    for warning in known.warnings("openmp", "conflict"):
        yield from_warning(warning, **{"openmp.libraries": copies})

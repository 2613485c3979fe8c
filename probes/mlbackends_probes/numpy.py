"""NumPy: arrays, and the BLAS that they are multiplied with.

Finds:    the distribution, numpy/version.py and numpy/__config__.py as text, the bundled libraries.
Caveats:  __config__.py tells the BLAS of the build. Which copy a process takes is told by
          `backends info openblas`, `mkl` and `blis`, or by --pid.
Source:   NumPy reference, numpy.show_config and "Global configuration options".
"""

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import PACKAGE_FACTS, found, package
from mlbackends.host.python.numpy_config import CONFIG_FACTS, config_facts
from mlbackends.host.variables import anything, one_of
from mlbackends.model.records import Fact, Finding

GROUP = "framework"
SUMMARY = ("numpy {version}",)
FACTS = (
    *PACKAGE_FACTS,
    *CONFIG_FACTS,
    Fact("environment", dict[str, str], "The variables that steer NumPy and are set."),
)

VARIABLES = {
    "NPY_DISABLE_CPU_FEATURES": anything,
    "NPY_ENABLE_CPU_FEATURES": anything,
    "NPY_PROMOTION_STATE": one_of("weak", "legacy", "weak_and_warn", case=True),
    "NPY_RELAXED_STRIDES_DEBUG": one_of("0", "1"),
    "NUMPY_MADVISE_HUGEPAGE": one_of("0", "1"),
    "NUMPY_WARN_IF_NO_MEM_POLICY": one_of("0", "1"),
}


def find(host: Host) -> Finding:
    """Read what the package says of itself and of its build."""
    numpy = package(host, ("numpy",), "numpy", "version.py")
    facts = config_facts(host, numpy.location, "numpy") if numpy and numpy.location else {}
    return found(host, numpy, "numpy", facts=facts, variables=VARIABLES)

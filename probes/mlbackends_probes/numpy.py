"""NumPy: arrays, and the BLAS that they are multiplied with.

Finds:    the distribution, numpy/version.py and numpy/__config__.py as text, the bundled libraries.
Caveats:  __config__.py tells the BLAS of the build. Which copy a process takes is told by
          `backends info openblas`, `mkl` and `blis`, or by --pid.
Source:   NumPy reference, numpy.show_config and "Global configuration options".
"""

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import PACKAGE_FACTS, found, package
from mlbackends.host.python.numpy_config import CONFIG_FACTS, config_facts
from mlbackends.model.records import Finding

GROUP = "framework"
FACTS = (
    *PACKAGE_FACTS,
    *CONFIG_FACTS,
)


def find(host: Host) -> Finding:
    """Read what the package says of itself and of its build."""
    numpy = package(host, ("numpy",), "numpy", "version.py")
    facts = config_facts(host, numpy.location, "numpy") if numpy and numpy.location else {}
    return found(host, numpy, "numpy", facts)

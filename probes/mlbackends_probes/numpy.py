"""NumPy: arrays, and the BLAS that they are multiplied with.

Finds:    the distribution, numpy/version.py and numpy/__config__.py as text, the bundled libraries.
Usable:   imported in a child process, it multiplies two matrices correctly.
Caveats:  __config__.py has the BLAS of the build, and blas_configuration its text on the build machine.
          `backends info uses` and --pid show which copy a process uses.
Source:   NumPy reference, numpy.show_config, numpy.show_runtime and "Global configuration options".
"""

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import config_facts, found, package
from mlbackends.model.records import Finding

GROUP = "framework"
CHECK = """
import numpy

left = numpy.arange(6.0).reshape(2, 3)
got = (left @ left.T).tolist()
if got != [[5.0, 14.0], [14.0, 50.0]]:
    fail("wrong-result", f"a product of matrices gave {got}")
computed = True
try:
    from numpy._core import _multiarray_umath as core
except ImportError:
    from numpy.core import _multiarray_umath as core
facts["simd_baseline"] = list(core.__cpu_baseline__)
for feature in core.__cpu_dispatch__:
    found = "simd_found" if core.__cpu_features__[feature] else "simd_not_found"
    facts.setdefault(found, []).append(feature)
"""


def find(host: Host) -> Finding:
    """Read the package's metadata and files and of its build."""
    numpy = package(host, ("numpy",), "numpy", "version.py")
    facts = config_facts(host, numpy.location, "numpy") if numpy and numpy.location else {}
    return found(host, numpy, "numpy", facts)

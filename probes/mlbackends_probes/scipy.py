"""SciPy: scientific algorithms over NumPy, with another BLAS and LAPACK.

Finds:    the distribution, scipy/version.py and scipy/__config__.py as text, the bundled libraries.
Caveats:  SciPy's wheel includes another copy of OpenBLAS than NumPy's, with separate threads.
Source:   SciPy reference, scipy.show_config; SciPy toolchain roadmap, "NumPy".
"""

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import config_facts, found, package, range_warnings
from mlbackends.model.records import Finding

GROUP = "framework"


def find(host: Host) -> Finding:
    """Read the package's metadata and files and of its build."""
    scipy = package(host, ("scipy",), "scipy", "version.py")
    if scipy is None:
        return found(host, None, "scipy")
    facts = config_facts(host, scipy.location, "scipy") if scipy.location else {}
    warnings = range_warnings(host, scipy, ("numpy",), "it was not tried with that")
    return found(host, scipy, "scipy", facts, warnings)

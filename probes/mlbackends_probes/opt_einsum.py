"""opt_einsum: finds a good order of contractions for einsum.

Finds:    the distribution and its version as text.
Caveats:  torch.einsum takes it when it is installed, JAX always; how is torch's setting.
Source:   opt_einsum documentation; PyTorch documentation, torch.backends.opt_einsum.
"""

from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import found, package
from mlbackends.model.records import Finding

GROUP = "framework"


def find(host: Host) -> Finding:
    """Read the package's metadata and files."""
    return found(host, package(host, ("opt-einsum",), "opt_einsum", "_version.py"), "opt_einsum")

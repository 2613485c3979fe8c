"""KleidiAI: Arm's small kernels for matrix products, built into torch for AArch64.

Finds:    libkleidiai, and the copy inside torch where torch shows its functions.
Usable:   not tried: there is no function that is the same in every release.
Caveats:  it has no version, and it exists for 64-bit Arm alone.
Source:   KleidiAI's headers kai_lhs_quant_pack_qai8dxp_f32.h and kai_rhs_pack_*.h.
"""

from mlbackends.host.host import Host
from mlbackends.libraries.search import absent, inside, libraries_named
from mlbackends.model.reasons import Reason
from mlbackends.model.records import Finding

GROUP = "library"
FACTS = ()

_SIGNS = (
    "kai_run_lhs_quant_pack_qai8dxp_f32",
    "kai_run_rhs_pack_nxk_qsi4cxp_qs4cxs1s0",
    "kai_run_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0",
)
_MACHINES = ("aarch64", "arm64", "ARM64")


def find(host: Host) -> Finding:
    """Look for it by itself and inside torch, on Arm."""
    libraries = libraries_named(host, "kleidiai", "libkleidiai")
    if host.machine and host.machine not in _MACHINES:
        message = f"KleidiAI is for 64-bit Arm; this is {host.machine}"
        return Finding(tuple(libraries), reasons=(Reason("not-this-platform", message),))
    libraries += inside(host, "kleidiai", "libtorch_cpu", _SIGNS)
    if not libraries:
        return Finding(reasons=(absent(host, "libkleidiai, nor its functions inside torch,"),))
    return Finding(libraries=tuple(libraries))

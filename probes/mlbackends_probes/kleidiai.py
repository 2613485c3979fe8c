"""KleidiAI: Arm's small kernels for matrix products, built into torch for AArch64.

Finds:    libkleidiai, and the copy inside torch where torch shows its functions.
Usable:   not tried: no function is the same in every release.
Caveats:  it has no version, and it exists for 64-bit Arm alone.
Source:   KleidiAI's headers kai_lhs_quant_pack_qai8dxp_f32.h and kai_rhs_pack_*.h.
"""

from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.libraries.search import SharedLibrary
from mlbackends.model.records import Finding

LIBRARY = SharedLibrary(
    "kleidiai",
    ("libkleidiai",),
    symbols=(
        "kai_run_lhs_quant_pack_qai8dxp_f32",
        "kai_run_rhs_pack_nxk_qsi4cxp_qs4cxs1s0",
        "kai_run_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0",
    ),
    missing="libkleidiai, nor its functions inside torch,",
)


def find(host: Host) -> Finding:
    """Look for it by itself and inside torch, on Arm."""
    if not host.machine or host.machine in ("aarch64", "arm64", "ARM64"):
        return LIBRARY.find(host)
    message = f"KleidiAI is for 64-bit Arm; this is {host.machine}"
    finding = replace(LIBRARY, symbols=()).find(host)
    return Finding(finding.libraries, reasons=(Reason("not-this-platform", message),))

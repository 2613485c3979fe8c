"""What the kernel does against flaws of the CPU, and which of it costs speed.

Source: Linux, Documentation/admin-guide/hw-vuln/ and sysfs-devices-system-cpu, vulnerabilities.
"""

from mlbackends.host.cpu.topology import CPU
from mlbackends.host.host import Host
from mlbackends.host.quantities import one_line
from mlbackends.model.reasons import Reason

_COSTLY = {
    "gather_data_sampling": ("Mitigation: Microcode",),
    "indirect_target_selection": ("Aligned branch/return thunks", "Retpolines"),
    "l1tf": ("cache flushes", "SMT disabled"),
    "mds": ("Clear CPU buffers",),
    "meltdown": ("PTI",),
    "mmio_stale_data": ("Clear CPU buffers",),
    "reg_file_data_sampling": ("Clear Register File",),
    "retbleed": ("untrained return thunk", "Mitigation: IBRS", "Stuffing", "IBPB"),
    "spec_rstack_overflow": ("Safe RET", "Mitigation: IBPB"),
    "spec_store_bypass": ("Mitigation: Speculative Store Bypass disabled",),
    "spectre_v2": (
        "Retpolines",
        "Mitigation: IBRS",
        "Mitigation: LFENCE",
        "BHI_DIS_S",
        "BHI: SW loop",
    ),
    "srbds": ("Mitigation: Microcode",),
    "tsa": ("Clear CPU buffers",),
    "tsx_async_abort": ("Clear CPU buffers",),
    "vmscape": ("IBPB",),
}
"""Of each flaw, the words in its state that mean work at run time."""

_FREE = "disabled via prctl"
"""Off unless a program asks for it."""


def mitigations(host: Host) -> dict[str, str]:
    """Return the state of each flaw that this CPU has, in the kernel's words."""
    folder = f"{CPU}/vulnerabilities"
    states = {name: one_line(host.read(f"{folder}/{name}", 1024)) for name in host.listdir(folder)}
    return {name: state for name, state in states.items() if state and state != "Not affected"}


def costly(states: dict[str, str]) -> list[str]:
    """Return the flaws whose mitigation makes the kernel or some instructions slower."""
    return sorted(
        name
        for name, state in states.items()
        if any(words in state for words in _COSTLY.get(name, ())) and _FREE not in state
    )


def gather_warning(states: dict[str, str]) -> Reason | None:
    """Return the one mitigation that slows vector code itself, not only calls into the kernel."""
    if "gather_data_sampling" not in costly(states):
        return None
    return Reason(
        "mitigation-costs-speed",
        "gather_data_sampling is mitigated in microcode: gather instructions of AVX2 and AVX-512"
        " are much slower (embeddings, index_select, sparse kernels)",
        "on a machine that runs only trusted code: boot with gather_data_sampling=off",
    )

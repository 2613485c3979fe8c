"""How fast the CPUs may run and who decides: limits, governor, boost.

Source: Linux, Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst and amd-pstate.rst.

What the kernel does against flaws of the CPU, and which of it costs speed.

Source: Linux, Documentation/admin-guide/hw-vuln/ and sysfs-devices-system-cpu, vulnerabilities.
"""

import re

from mlbackends.host.cpu.cpuinfo import Block
from mlbackends.host.cpu.topology import CPU
from mlbackends.host.host import Host
from mlbackends.host.quantities import hertz, one_line, word
from mlbackends.model.reasons import Reason
from mlbackends.model.records import FactValue

_KILOHERTZ, _MEGAHERTZ, _GIGAHERTZ = 1_000, 1_000_000, 1_000_000_000

_CHOOSES_ITSELF = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""Drivers with which the governor "powersave" does not pin the lowest frequency."""


def frequency_facts(host: Host, cpu: int, blocks: list[Block]) -> dict[str, FactValue]:
    """Return limits, governor and boost; the highest limit is that of the fastest CPU.

    cpu: the CPU that is asked for what all have in common.
    """
    policy = f"{CPU}/cpu{cpu}/cpufreq"
    facts: dict[str, FactValue | None] = {
        "min_hertz": hertz(host.read(f"{policy}/cpuinfo_min_freq"), _KILOHERTZ),
        "max_hertz": _highest(host),
        "base_hertz": _base(host, cpu, blocks),
        "current_hertz": _current(host, policy, blocks),
        "limit_hertz": hertz(host.read(f"{policy}/scaling_max_freq"), _KILOHERTZ),
        "governor": word(host.read(f"{policy}/scaling_governor", 64)),
        "scaling_driver": word(host.read(f"{policy}/scaling_driver", 64)),
        "energy_preference": word(host.read(f"{policy}/energy_performance_preference", 64)),
        "idle_driver": word(host.read(f"{CPU}/cpuidle/current_driver", 64)),
        "boost": _boost(host, policy),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def governor_warning(facts: dict[str, FactValue]) -> Reason | None:
    """Return what is wrong with the governor, if it holds every CPU at its lowest frequency."""
    driver = str(facts.get("scaling_driver", ""))
    if facts.get("governor") != "powersave" or driver in _CHOOSES_ITSELF or not driver:
        return None
    return Reason(
        "degraded",
        f"the governor is powersave, which with the driver {driver} keeps the lowest frequency",
        "as root: cpupower frequency-set -g performance (or schedutil)",
    )


def _highest(host: Host) -> int | None:
    folder = f"{CPU}/cpufreq"
    limits = [
        hertz(host.read(f"{folder}/{name}/cpuinfo_max_freq"), _KILOHERTZ)
        for name in host.listdir(folder)
        if name.startswith("policy")
    ]
    return max((limit for limit in limits if limit is not None), default=None)


def _base(host: Host, cpu: int, blocks: list[Block]) -> int | None:
    told = hertz(host.read(f"{CPU}/cpu{cpu}/cpufreq/base_frequency"), _KILOHERTZ)
    told = told or hertz(host.read(f"{CPU}/cpu{cpu}/acpi_cppc/nominal_freq"), _MEGAHERTZ)
    static = next((block["cpu mhz static"] for block in blocks if "cpu mhz static" in block), "")
    told = told or hertz(static, _MEGAHERTZ)
    if told:
        return told
    # Intel's names end in the nominal frequency: "... @ 2.30GHz".
    name = next((block["model name"] for block in blocks if "model name" in block), "")
    in_name = re.search(r"@ ([0-9]{1,2}\.[0-9]{1,2})GHz", name)
    return hertz(in_name[1], _GIGAHERTZ) if in_name else None


def _current(host: Host, policy: str, blocks: list[Block]) -> int | None:
    told = hertz(host.read(f"{policy}/scaling_cur_freq"), _KILOHERTZ)
    if told:
        return told
    for key in ("cpu mhz", "clock", "cpu mhz dynamic"):
        for block in blocks:
            if told := hertz(block.get(key, ""), _MEGAHERTZ):
                return told
    return None


def _boost(host: Host, policy: str) -> bool | None:
    no_turbo = host.read(f"{CPU}/intel_pstate/no_turbo", 16)
    if no_turbo in ("0", "1"):
        return no_turbo == "0"
    for path in (f"{CPU}/cpufreq/boost", f"{policy}/boost"):
        told = host.read(path, 16)
        if told in ("0", "1"):
            return told == "1"
    return None


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

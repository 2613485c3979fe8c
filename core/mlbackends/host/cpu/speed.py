"""How fast the CPUs may run, and what the kernel does against their flaws that costs speed.

Source: Linux, Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst and amd-pstate.rst;
admin-guide/hw-vuln/ and sysfs-devices-system-cpu, vulnerabilities.
"""

import re

from mlbackends.host.cpu.cpuinfo import Block, first
from mlbackends.host.cpu.topology import CPU
from mlbackends.host.host import Host
from mlbackends.host.quantities import hertz, one_line, word
from mlbackends.model.reasons import Reason
from mlbackends.model.records import FactValue, nonempty
from mlbackends.model.tables import table

_KILOHERTZ, _MEGAHERTZ, _GIGAHERTZ = 1_000, 1_000_000, 1_000_000_000

_CHOOSES_ITSELF = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
"""Drivers with which the governor "powersave" does not pin the lowest frequency."""

_ON_REQUEST = "disabled via prctl"
"""A mitigation that is off unless a program asks for it."""


def frequency_facts(host: Host, cpu: int, blocks: list[Block]) -> dict[str, FactValue]:
    """Return limits, governor and boost; the highest limit is that of the fastest CPU.

    cpu: the CPU from which facts are read that all have in common.
    """
    policy = f"{CPU}/cpu{cpu}/cpufreq"
    limits = [
        hertz(host.read(f"{CPU}/cpufreq/{name}/cpuinfo_max_freq"), _KILOHERTZ)
        for name in host.listdir(f"{CPU}/cpufreq")
        if name.startswith("policy")
    ]
    # Intel's names end in the nominal frequency: "... @ 2.30GHz".
    in_name = re.search(r"@ ([0-9]{1,2}\.[0-9]{1,2})GHz", first(blocks, "model name"))
    base = (
        hertz(host.read(f"{CPU}/cpu{cpu}/cpufreq/base_frequency"), _KILOHERTZ)
        or hertz(host.read(f"{CPU}/cpu{cpu}/acpi_cppc/nominal_freq"), _MEGAHERTZ)
        or hertz(first(blocks, "cpu mhz static"), _MEGAHERTZ)
        or (hertz(in_name[1], _GIGAHERTZ) if in_name else None)
    )
    current = hertz(host.read(f"{policy}/scaling_cur_freq"), _KILOHERTZ) or next(
        (
            number
            for key in ("cpu mhz", "clock", "cpu mhz dynamic")
            for block in blocks
            if (number := hertz(block.get(key, ""), _MEGAHERTZ))
        ),
        None,
    )
    boosts = (
        (host.read(path, 16), on)
        for path, on in (
            (f"{CPU}/intel_pstate/no_turbo", "0"),
            (f"{CPU}/cpufreq/boost", "1"),
            (f"{policy}/boost", "1"),
        )
    )
    facts = {
        "min_hertz": hertz(host.read(f"{policy}/cpuinfo_min_freq"), _KILOHERTZ),
        "max_hertz": max((limit for limit in limits if limit is not None), default=None),
        "base_hertz": base,
        "current_hertz": current,
        "limit_hertz": hertz(host.read(f"{policy}/scaling_max_freq"), _KILOHERTZ),
        "governor": word(host.read(f"{policy}/scaling_governor", 64)),
        "scaling_driver": word(host.read(f"{policy}/scaling_driver", 64)),
        "energy_preference": word(host.read(f"{policy}/energy_performance_preference", 64)),
        "idle_driver": word(host.read(f"{CPU}/cpuidle/current_driver", 64)),
        "boost": next((text == on for text, on in boosts if text in ("0", "1")), None),
    }
    return nonempty(facts)


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


def mitigations(host: Host) -> dict[str, str]:
    """Return the state of each flaw that this CPU has, in the kernel's words."""
    folder = f"{CPU}/vulnerabilities"
    states = {name: one_line(host.read(f"{folder}/{name}", 1024)) for name in host.listdir(folder)}
    return {name: state for name, state in states.items() if state and state != "Not affected"}


def costly(states: dict[str, str]) -> list[str]:
    """Return the flaws whose mitigation makes the kernel or some instructions slower.

    mitigations.json has of each flaw the words in its state that mean work at run time.
    """
    words = table("host/cpu/mitigations") if states else {}
    return sorted(
        name
        for name, state in states.items()
        if any(each in state for each in words.get(name, ())) and _ON_REQUEST not in state
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

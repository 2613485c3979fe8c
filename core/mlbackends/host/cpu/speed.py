"""How fast the CPUs may run, and the mitigations of their vulnerabilities that cost speed.

Source: Linux, Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst and amd-pstate.rst;
admin-guide/hw-vuln/ and sysfs-devices-system-cpu, vulnerabilities.
"""

from collections.abc import Sequence

from mlbackends.base.quantities import (
    format_cpu_list,
    hertz,
    one_line,
    parse_cpu_list,
    whole_number,
    word,
)
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.cpu.cpuinfo import Block, first
from mlbackends.host.cpu.topology import CPU, Limits
from mlbackends.host.host import Host
from mlbackends.host.system.rows import only_row, rows
from mlbackends.model.records import FactValue, nonempty

_KILOHERTZ, _MEGAHERTZ, _GIGAHERTZ = 1_000, 1_000_000, 1_000_000_000

#: Drivers with which the governor "powersave" does not pin the lowest frequency.
_CHOOSES_ITSELF = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")

#: A mitigation that is off unless a program asks for it.
_ON_REQUEST = "disabled via prctl"


def limits(host: Host, cpus: tuple[int, ...]) -> Limits:
    """Return each CPU's own highest frequency and the highest that its settings allow; {} if unknown."""
    names = [name for name in host.listdir(f"{CPU}/cpufreq") if name.startswith("policy")]
    by_cpu: Limits = {}
    for name in names:
        folder, first_cpu = f"{CPU}/cpufreq/{name}", whole_number(name[6:])
        pair = _limits_in(host, folder)
        if pair != (None, None):
            listed = host.read(f"{folder}/related_cpus") if len(names) < len(cpus) else ""
            by_cpu.update(dict.fromkeys(parse_cpu_list(listed) or (first_cpu or 0,), pair))
    # Before Linux 4.3 each CPU has a folder, and no policy.
    if any(host.is_dir(f"{CPU}/cpu{cpu}/cpufreq") for cpu in (*cpus[:1], *cpus[-1:])):
        for cpu in (cpu for cpu in cpus if None in by_cpu.get(cpu, (None,))):
            own, allowed = _limits_in(host, f"{CPU}/cpu{cpu}/cpufreq")
            if own or allowed:
                by_cpu[cpu] = (own or by_cpu.get(cpu, (None,))[0], allowed)
    return {cpu: by_cpu[cpu] for cpu in cpus if cpu in by_cpu}


def _limits_in(host: Host, folder: str) -> tuple[int | None, int | None]:
    files = ("cpuinfo_max_freq", "scaling_max_freq")
    own, allowed = (hertz(host.read(f"{folder}/{file}"), _KILOHERTZ) for file in files)
    return own, allowed


def range_of(host: Host, cpus: Sequence[int], of_cpus: Limits) -> dict[str, FactValue]:
    """Return the highest, base and allowed frequency of some CPUs; the limit is the fastest CPU's."""
    pairs = [of_cpus[cpu] for cpu in cpus if cpu in of_cpus]
    highest = max((own for own, _ in pairs if own), default=None)
    allowed = [pair for pair in pairs if pair[1]]
    fastest = max((own or 0 for own, _ in allowed), default=0)
    facts = {
        "max_hertz": highest,
        "base_hertz": _base(host, cpus[0]) if cpus else None,
        "limit_hertz": max((limit or 0 for own, limit in allowed if (own or 0) == fastest), default=0),
    }
    return {name: value for name, value in facts.items() if value}


def _base(host: Host, cpu: int) -> int | None:
    return hertz(host.read(f"{CPU}/cpu{cpu}/cpufreq/base_frequency"), _KILOHERTZ) or hertz(
        host.read(f"{CPU}/cpu{cpu}/acpi_cppc/nominal_freq"), _MEGAHERTZ
    )


def frequency_facts(
    host: Host, cpus: tuple[int, ...], blocks: list[Block], of_cpus: Limits
) -> dict[str, FactValue]:
    """Return limits, governor and boost of the fastest CPUs, and which CPUs are limited.

    cpus: those of the fastest kind, or all. What CPUs of a kind have in common is read from the first.
    """
    cpu = cpus[0] if cpus else 0
    policy = f"{CPU}/cpu{cpu}/cpufreq"
    # Intel's names end in the nominal frequency: "... @ 2.30GHz".
    _, mark, in_name = first(blocks, "model name").rpartition("@ ")
    static = hertz(first(blocks, "cpu mhz static"), _MEGAHERTZ)
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
    named = static or (hertz(in_name, _GIGAHERTZ) if mark else None)
    capped = {
        number: (own, allowed)
        for number, (own, allowed) in of_cpus.items()
        if own and allowed and allowed < own
    }
    # One CPU for each highest frequency: the kinds of core have policies of their own.
    fastest_of = {own: number for number, (own, _) in reversed(of_cpus.items())}
    folders = {policy, *(f"{CPU}/cpu{number}/cpufreq" for number in fastest_of.values())}
    lowest = (hertz(host.read(f"{folder}/cpuinfo_min_freq"), _KILOHERTZ) for folder in folders)
    facts = {
        "min_hertz": min(filter(None, lowest), default=None),
        "base_hertz": named,
        **range_of(host, cpus, of_cpus),
        "current_hertz": current,
        "capped_cpus": format_cpu_list(capped),
        "held_cpus": format_cpu_list(
            number
            for number, (own, allowed) in capped.items()
            if allowed < min(_base(host, number) or named or own // 2, own)
        ),
        "governor": word(host.read(f"{policy}/scaling_governor", 64)),
        "scaling_driver": word(host.read(f"{policy}/scaling_driver", 64)),
        "energy_preference": word(host.read(f"{policy}/energy_performance_preference", 64)),
        "idle_driver": word(host.read(f"{CPU}/cpuidle/current_driver", 64)),
        "idle_states": rows(host, "idle_states"),
        "power_limits": rows(host, "power_limits"),
        **only_row(host, "power_settings", "tuned"),
        # What CPPC counts in: steps of the processor's own.
        **{
            f"{name}_performance": whole_number(host.read(f"{CPU}/cpu{cpu}/acpi_cppc/{name}_perf", 16), 1)
            for name in ("nominal", "highest")
        },
        "boost": next((text == on for text, on in boosts if text in ("0", "1")), None),
    }
    return nonempty(facts)


def governor_warning(facts: dict[str, FactValue]) -> Reason | None:
    """Return a warning if the governor keeps every CPU at its lowest frequency."""
    driver = str(facts.get("scaling_driver", ""))
    if facts.get("governor") != "powersave" or driver in _CHOOSES_ITSELF or not driver:
        return None
    return Reason(
        "degraded",
        f"the governor is powersave, which with the driver {driver} keeps the lowest frequency",
        "as root: cpupower frequency-set -g performance (or schedutil)",
    )


def mitigations(host: Host) -> tuple[dict[str, str], list[str]] | None:
    """Return the state of each vulnerability of this CPU, in the kernel's words, and those it does not have.

    None if the kernel does not report them.
    """
    folder = f"{CPU}/vulnerabilities"
    states = {name: one_line(host.read(f"{folder}/{name}", 1024)) for name in host.listdir(folder)}
    absent = [name for name, state in states.items() if state == "Not affected"]
    present = {name: state for name, state in states.items() if state and name not in absent}
    return (present, absent) if present or absent else None


def costly(states: dict[str, str]) -> list[str]:
    """Return the vulnerabilities whose mitigation makes the kernel or some instructions slower.

    mitigations.json lists for each the words in its state that mean work at run time.
    """
    words = table("host/cpu/mitigations") if states else {}
    return sorted(
        name
        for name, state in states.items()
        if any(word in state for word in words.get(name, ())) and _ON_REQUEST not in state
    )


def gather_warning(states: dict[str, str]) -> Reason | None:
    """Return a warning for the one mitigation that slows vector code itself, not only system calls."""
    if "gather_data_sampling" not in costly(states):
        return None
    return Reason(
        "mitigation-costs-speed",
        "gather_data_sampling is mitigated in microcode: loops of gather instructions of AVX2 and"
        " AVX-512 are slower (embeddings, index_select, sparse kernels), most programs hardly",
        "on a machine that runs only trusted code: measure with gather_data_sampling=off at boot",
    )

"""CPU: what the processor is, what its instructions can do, and how its cores are arranged.

Finds:    /proc/cpuinfo, /sys/devices/system/cpu and node, the auxiliary vector; macOS: `sysctl -a`; Windows:
          CPUID, GetLogicalProcessorInformationEx, the registry; other systems: py-cpuinfo, in a child.
Caveats:  a virtual machine may hide caches, frequencies and mitigations; on Arm the name of a core is looked
          up by its part number, which is a guess at the product's name.
Source:   Linux, sysfs-devices-system-cpu, proc(5); torch 2.13, DispatchStub.cpp; x86-64 psABI.
"""

from mlbackends.base.quantities import whole_number
from mlbackends.host.cpu import features, speed, topology
from mlbackends.host.cpu.cpuinfo import (
    Block,
    architecture_of,
    first,
    identity,
    microarchitecture,
    read_blocks,
)
from mlbackends.host.declared import facts_of
from mlbackends.host.host import Host
from mlbackends.host.system.kernel import auxiliary_vector
from mlbackends.host.system.numa import numa_nodes
from mlbackends.model.records import FactValue, Finding, Presence

GROUP = "machine"


# A number is how many threads of each core are on, where some are: POWER has 8 of them.
_SMT = frozenset({"on", "off", "forceoff", "notsupported", "notimplemented", *"12345678"})


def find(host: Host) -> Finding:
    """Inspect the CPUs; a fact that is not known is left out."""
    blocks, machine = read_blocks(host), host.machine
    architecture = architecture_of(machine, blocks)
    facts: dict[str, FactValue] = {"architecture": architecture, "machine": machine}
    if host.platform == "darwin":
        from mlbackends.host.cpu.other_systems import of_macos

        words, own = of_macos(host)
        facts |= own
    elif host.platform == "win32":
        words = features.features_of(architecture, blocks, {})
        facts |= _facts_of_windows(host, architecture, blocks)
    elif blocks or host.platform == "linux":
        words = features.features_of(architecture, blocks, auxiliary_vector(host))
        cpus = topology.online_cpus(host, blocks)
        limits = speed.limits(host, cpus)
        kinds = [
            (name, group, {**more, **speed.range_of(host, group, limits)})
            for name, group, more in topology.kind_groups(host, cpus, blocks, limits)
        ]
        smt, active = (host.read(f"{topology.CPU}/smt/{name}", 64) for name in ("control", "active"))
        states = speed.mitigations(host)
        facts |= {
            **identity(architecture, _of_all_cores(blocks, kinds)),
            **topology.topology_facts(host, architecture, blocks, cpus, kinds),
            "caches": topology.caches(host, cpus, kinds, blocks) or "",
            "numa_nodes": numa_nodes(host) or "",
            **speed.frequency_facts(host, kinds[0][1] if kinds else cpus, blocks, limits),
            "smt": smt if smt in _SMT else "",
        }
        if active in ("0", "1"):
            facts["smt_active"] = active == "1"
        if states:
            affected, not_affected = states
            facts |= {"mitigations": affected, "not_affected": not_affected}
            facts["costly_mitigations"] = speed.costly(affected)
    else:
        from mlbackends.host.cpu.other_systems import of_py_cpuinfo

        words, own = of_py_cpuinfo(host)
        facts |= own
    vector_bytes = {}
    for extension in ("sve", "sme"):
        text = host.read(f"/proc/sys/abi/{extension}_default_vector_length", 64)
        vector_bytes[extension] = size = whole_number(text, 16, 256)
        if size is not None and extension in words:
            facts[f"{extension}_vector_bytes"] = size
    facts |= microarchitecture(architecture, facts)
    facts |= features.feature_facts(architecture, words)
    if architecture == "x86_64":
        facts["x86_64_level"] = features.x86_64_level(words)

    hardware = features.hardware_capability(architecture, words, vector_bytes["sve"], host.platform)
    override = host.environment.get(features.VARIABLE)
    used, wrong = features.capability(architecture, hardware, override, host.platform)
    facts |= {"hardware_capability": hardware, "capability": used}
    if override is not None:
        facts["environment"] = {features.VARIABLE: override}
    mitigations = facts.get("mitigations")
    slowed = speed.gather_warning(mitigations) if isinstance(mitigations, dict) else None
    warnings = tuple(warning for warning in (wrong, speed.governor_warning(facts), slowed) if warning)
    # What is not known is left out, but that no CPU is off is known.
    reported = {
        name: value for name, value in facts.items() if value not in ("", None) or name == "offline_cpus"
    }
    in_order = {name: reported[name] for name in facts_of("cpu") if name in reported}
    return Finding(presence=Presence.FOUND, facts=in_order, warnings=warnings)


def _of_all_cores(blocks: list[Block], kinds: topology.Kinds) -> list[Block]:
    """Return the blocks, without the part number if one core alone of several kinds states it."""
    if not kinds or "part" in kinds[0][2] or not first(blocks, "cpu part"):
        return blocks
    return [{"model name": first(blocks, "model name")}]


def _facts_of_windows(host: Host, architecture: str, blocks: list[Block]) -> dict[str, FactValue]:
    """Return what Windows reports of the CPUs."""
    from mlbackends.host.windows import cpu as windows

    cpus, kinds = windows.online_cpus(host), windows.kind_groups(host)
    return {
        **identity(architecture, blocks),
        **topology.topology_facts(host, architecture, blocks, cpus, kinds),
        **windows.groups_and_emulation(host, architecture),
        **windows.frequency_facts(host, kinds),
        "caches": windows.caches(host, kinds) or "",
        "numa_nodes": numa_nodes(host) or "",
    }

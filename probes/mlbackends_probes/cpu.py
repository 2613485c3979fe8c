"""CPU: what the processor is, what its instructions can do, and how its cores hang together.

Finds:    /proc/cpuinfo, /sys/devices/system/cpu and node, the auxiliary vector; macOS: `sysctl -a`.
Caveats:  a virtual machine may hide caches, frequencies and mitigations; on Arm the name of a core
          is looked up by its part number, which is a guess at what the product is called.
Source:   Linux, sysfs-devices-system-cpu, proc(5); torch 2.13, DispatchStub.cpp; x86-64 psABI.
"""

from mlbackends.host.cpu.cpuinfo import architecture_of, identity, read_blocks
from mlbackends.host.cpu.features import (
    VARIABLE,
    capability,
    feature_facts,
    features_of,
    features_of_macos,
    hardware_capability,
    x86_64_level,
)
from mlbackends.host.cpu.speed import (
    costly,
    frequency_facts,
    gather_warning,
    governor_warning,
    mitigations,
)
from mlbackends.host.cpu.topology import (
    CPU,
    caches,
    kind_groups,
    numa_nodes,
    online_cpus,
    topology_facts,
)
from mlbackends.host.host import Host
from mlbackends.host.quantities import whole_number
from mlbackends.host.system.kernel import auxiliary_vector, system_controls
from mlbackends.model.records import FactValue, Finding, Presence
from mlbackends.model.registry import facts_of

GROUP = "machine"

SUMMARY = (
    "model_name",
    "{sockets} sockets",
    "{cores} cores",
    "{threads} threads",
    "hardware_capability",
    "x86_64_level",
)
USUAL = {"sockets": 1}

# A number is how many threads of each core are on, where some are: POWER has 8 of them.
_SMT = frozenset({"on", "off", "forceoff", "notsupported", "notimplemented", *"12345678"})


def find(host: Host) -> Finding:
    """Look at the CPUs; a fact that nothing tells is left out."""
    blocks = read_blocks(host)
    machine = host.machine
    architecture = architecture_of(machine, blocks)
    facts: dict[str, FactValue] = {"architecture": architecture, "machine": machine}
    if host.platform == "darwin":
        from mlbackends.host.cpu.other_systems import macos_facts

        controls = system_controls(host)
        features = features_of_macos(controls)
        facts |= macos_facts(controls)
    elif blocks or host.platform == "linux":
        features = features_of(architecture, blocks, auxiliary_vector(host))
        facts |= _linux_facts(host, architecture, blocks)
    else:
        from mlbackends.host.cpu.other_systems import other_facts

        described, features = other_facts(host)
        facts |= described
    vector_bytes = {}
    for extension in ("sve", "sme"):
        text = host.read(f"/proc/sys/abi/{extension}_default_vector_length", 64)
        vector_bytes[extension] = size = whole_number(text, 16, 256)
        if size is not None and extension in features:
            facts[f"{extension}_vector_bytes"] = size
    facts |= feature_facts(architecture, features)
    if architecture == "x86_64":
        facts["x86_64_level"] = x86_64_level(features)

    hardware = hardware_capability(architecture, features, vector_bytes["sve"], host.platform)
    override = host.environment.get(VARIABLE)
    used, wrong = capability(architecture, hardware, override, host.platform)
    facts |= {"hardware_capability": hardware, "capability": used}
    if override is not None:
        facts["environment"] = {VARIABLE: override}
    states = facts.get("mitigations")
    slowed = gather_warning(states) if isinstance(states, dict) else None
    warnings = tuple(one for one in (wrong, governor_warning(facts), slowed) if one)
    # What is not known is left out, but that no CPU is off is known.
    known = {name for name, value in facts.items() if value != "" or name == "offline_cpus"}
    in_order = {name: facts[name] for name in facts_of("cpu") if name in known}
    return Finding(presence=Presence.FOUND, facts=in_order, warnings=warnings)


def _linux_facts(
    host: Host, architecture: str, blocks: list[dict[str, str]]
) -> dict[str, FactValue]:
    cpus = online_cpus(host, blocks)
    facts: dict[str, FactValue] = {**identity(architecture, blocks)}
    kinds = kind_groups(host, cpus, blocks)
    facts |= topology_facts(host, blocks, cpus, kinds)
    if listed := caches(host, cpus, [group for _, group, _ in kinds], blocks):
        facts["caches"] = list(listed)
    if nodes := numa_nodes(host):
        facts["numa_nodes"] = list(nodes)
    facts |= frequency_facts(host, cpus[0] if cpus else 0, blocks)
    if (smt := host.read(f"{CPU}/smt/control", 64)) in _SMT:
        facts["smt"] = smt
    active = host.read(f"{CPU}/smt/active", 64)
    if active in ("0", "1"):
        facts["smt_active"] = active == "1"
    if states := mitigations(host):
        facts["mitigations"] = dict(states)
        facts["costly_mitigations"] = list(costly(states))
    return facts

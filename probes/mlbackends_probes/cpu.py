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
from mlbackends.host.cpu.other_systems import macos_facts, other_facts
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
from mlbackends.model.records import Fact, FactValue, Finding, Presence

GROUP = "machine"

_TABLE = list[dict[str, FactValue]]

LADDER = ("DEFAULT", "AVX2", "AVX512")
"""torch's capabilities that are steps of one ladder; other processors' have no second step."""

SUMMARY = (
    "model_name",
    "{sockets} sockets",
    "{cores} cores",
    "{threads} threads",
    "hardware_capability",
    "x86_64_level",
)
USUAL = {"sockets": 1}
FACTS = (
    # what it is
    Fact("architecture", str, "The processor family: x86_64, aarch64, ppc64le, s390x, riscv64."),
    Fact("machine", str, "The processor as uname spells it."),
    Fact("vendor", str, "Who made the processor, or designed its cores (Arm)."),
    Fact("vendor_id", str, "The maker as the processor says it: GenuineIntel, 0x41."),
    Fact(
        "model_name",
        str,
        "The processor's name; with model_name_source part-number it is a guess, from a table.",
    ),
    Fact(
        "model_name_source",
        str,
        "Where the name is from: kernel, or part-number (a table of ours).",
    ),
    Fact("family", int, "x86: the CPU family."),
    Fact("model", int, "x86: the model within the family."),
    Fact("stepping", int, "x86: the stepping."),
    Fact("microcode", str, "The microcode's revision; a hypervisor may make one up."),
    Fact("part", str, "Arm: the part number of the first CPU; s390x: the machine type."),
    Fact("revision", str, "Arm and POWER: the revision."),
    Fact("power_generation", int, "POWER: the generation, 9 for POWER9."),
    Fact("isa", str, "RISC-V: the instruction set as the kernel writes it."),
    Fact(
        "translated",
        bool,
        "macOS: this process runs under Rosetta; the facts are the emulated CPU's.",
    ),
    # what it can do
    Fact(
        "x86_64_level",
        str,
        "The highest x86-64 micro-architecture level, x86-64-v1 to v4.",
        order=("x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
    ),
    Fact(
        "capability",
        str,
        "Which of its CPU kernels torch uses, as torch.backends.cpu.get_cpu_capability() says it.",
        order=LADDER,
    ),
    Fact(
        "hardware_capability",
        str,
        f"The same if {VARIABLE} were not set.",
        order=LADDER,
    ),
    Fact("environment", dict[str, str], f"{VARIABLE}, if it is set."),
    Fact("sse4_2", bool, "x86: SSE4.2."),
    Fact("avx", bool, "x86: AVX, as the kernel allows it."),
    Fact("avx2", bool, "x86: AVX2, as the kernel allows it."),
    Fact("fma", bool, "x86: fused multiply-add (FMA3)."),
    Fact("f16c", bool, "x86: conversion between float16 and float32."),
    Fact("avx512", list[str], "x86: the AVX-512 subsets, by Linux's names."),
    Fact("amx", list[str], "x86: the AMX subsets, by Linux's names."),
    Fact("vnni", bool, "x86: 8-bit dot products, in AVX-512 or AVX form."),
    Fact("avx_vnni", bool, "x86: 8-bit dot products in AVX form."),
    Fact("bf16", bool, "Arithmetic on bfloat16: AVX-512, AMX, Arm BF16 or RISC-V Zvfbf."),
    Fact("fp16", bool, "Arithmetic on float16: AVX-512, AMX, Arm ASIMDHP or RISC-V Zvfh."),
    Fact("hypervisor", bool, "x86: the processor says that a hypervisor runs below."),
    Fact("neon", bool, "Arm: Advanced SIMD."),
    Fact("dotprod", bool, "Arm: 8-bit dot products (ASIMDDP)."),
    Fact("i8mm", bool, "Arm: 8-bit matrix multiplication."),
    Fact("sve", bool, "Arm: the Scalable Vector Extension."),
    Fact("sve2", bool, "Arm: SVE2."),
    Fact(
        "sve_vector_bytes",
        int,
        "Arm: the length of an SVE vector that a new process gets, in bytes.",
    ),
    Fact("sme", bool, "Arm: the Scalable Matrix Extension."),
    Fact("sme2", bool, "Arm: SME2."),
    Fact("sme_vector_bytes", int, "Arm: the length of a streaming vector, in bytes."),
    Fact("altivec", bool, "POWER: AltiVec."),
    Fact("vsx", bool, "POWER: VSX."),
    Fact("mma", bool, "POWER: the matrix multiply assist of POWER10."),
    Fact("vx", bool, "s390x: the vector facility."),
    Fact("vxe", bool, "s390x: vector enhancements 1, which bring float32."),
    Fact("vxe2", bool, "s390x: vector enhancements 2."),
    Fact("nnpa", bool, "s390x: the neural-network accelerator of z16 and later."),
    Fact("riscv_vector", bool, "RISC-V: the V extension, and the kernel lets programs use it."),
    Fact("riscv_vector_extensions", list[str], "RISC-V: the named vector extensions."),
    Fact("features", list[str], "Every feature that all CPUs have, by Linux's names, sorted."),
    # how it hangs together
    Fact("sockets", int, "How many sockets have a CPU that is on."),
    Fact("dies", int, "How many dies have a CPU that is on."),
    Fact("cores", int, "How many cores have a CPU that is on."),
    Fact(
        "threads",
        int,
        "How many CPUs are on; limits of a container or scheduler do not count here.",
    ),
    Fact("threads_per_core", int, "How many CPUs the fullest core has."),
    Fact("online_cpus", str, "The CPUs that are on, as a list: 0-3,8."),
    Fact("offline_cpus", str, 'The CPUs that are there and off, as a list; "" if none is.'),
    Fact("isolated_cpus", str, "The CPUs that the scheduler leaves alone (isolcpus)."),
    Fact("nohz_full_cpus", str, "The CPUs whose timer tick is off (nohz_full)."),
    Fact(
        "kinds",
        _TABLE,
        "On a hybrid processor each kind of core: name, threads, cores, cpus, capacity.",
    ),
    Fact(
        "caches",
        _TABLE,
        "Each cache: level, type, size_bytes, line_bytes, ways, instances, shared_by_cpus.",
    ),
    Fact(
        "numa_nodes",
        _TABLE,
        "Each NUMA node: node, cpus, memory_bytes, distances to the others.",
        "metric",
    ),
    Fact(
        "smt",
        str,
        "Simultaneous multi-threading as the kernel has it: on, off, forceoff, notsupported, "
        "notimplemented, or how many threads of each core are on.",
    ),
    Fact("smt_active", bool, "Some core runs more than one thread now."),
    # how fast it may run
    Fact("min_hertz", int, "The lowest frequency."),
    Fact(
        "max_hertz",
        int,
        "The highest frequency of the fastest CPU, boost included where Linux says it.",
    ),
    Fact("base_hertz", int, "The frequency that is guaranteed."),
    Fact("limit_hertz", int, "The highest frequency that the settings allow the first CPU now."),
    Fact("current_hertz", int, "The first CPU's frequency when it was looked at.", "volatile"),
    Fact("governor", str, "Who chooses the frequency, of the first CPU."),
    Fact("scaling_driver", str, "The kernel's driver that sets the frequency."),
    Fact(
        "energy_preference",
        str,
        "The hint that the processor gets: performance, balance_power, ...",
    ),
    Fact("idle_driver", str, "The kernel's driver that puts idle CPUs to sleep."),
    Fact("boost", bool, "Whether frequencies above the base are allowed."),
    Fact(
        "mitigations",
        dict[str, str],
        "Each flaw of this CPU and what the kernel does, in its words.",
    ),
    Fact("costly_mitigations", list[str], "The flaws whose mitigation costs speed."),
)

# A number is how many threads of each core are on, where some are: POWER has 8 of them.
_SMT = frozenset({"on", "off", "forceoff", "notsupported", "notimplemented", *"12345678"})


def find(host: Host) -> Finding:
    """Look at the CPUs; a fact that nothing tells is left out."""
    blocks = read_blocks(host)
    machine = host.machine
    architecture = architecture_of(machine, blocks)
    facts: dict[str, FactValue] = {"architecture": architecture, "machine": machine}
    if host.platform == "darwin":
        controls = system_controls(host)
        features = features_of_macos(controls)
        facts |= macos_facts(controls)
    elif blocks or host.platform == "linux":
        features = features_of(architecture, blocks, auxiliary_vector(host))
        facts |= _linux_facts(host, architecture, blocks)
    else:
        told, features = other_facts(host)
        facts |= told
    sve_bytes = _vector_bytes(host, "sve")
    if sve_bytes is not None and "sve" in features:
        facts["sve_vector_bytes"] = sve_bytes
    sme_bytes = _vector_bytes(host, "sme")
    if sme_bytes is not None and "sme" in features:
        facts["sme_vector_bytes"] = sme_bytes
    facts |= feature_facts(architecture, features)
    if architecture == "x86_64":
        facts["x86_64_level"] = x86_64_level(features)

    hardware = hardware_capability(architecture, features, sve_bytes, host.platform)
    override = host.environment.get(VARIABLE)
    used, wrong = capability(architecture, hardware, override, host.platform)
    facts |= {"hardware_capability": hardware, "capability": used}
    if override is not None:
        facts["environment"] = {VARIABLE: override}
    states = facts.get("mitigations")
    slowed = gather_warning(states) if isinstance(states, dict) else None
    warnings = tuple(one for one in (wrong, governor_warning(facts), slowed) if one)
    return Finding(presence=Presence.FOUND, facts=_in_order(facts), warnings=warnings)


def _vector_bytes(host: Host, extension: str) -> int | None:
    return whole_number(host.read(f"/proc/sys/abi/{extension}_default_vector_length", 64), 16, 256)


def _in_order(facts: dict[str, FactValue]) -> dict[str, FactValue]:
    """Return the facts that are known, in the order of FACTS. No CPU that is off is known too."""
    known = {name for name, value in facts.items() if value != "" or name == "offline_cpus"}
    return {fact.name: facts[fact.name] for fact in FACTS if fact.name in known}


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

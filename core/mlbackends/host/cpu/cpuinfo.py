"""The maker, name and microarchitecture of the CPU, from /proc/cpuinfo.

Its form depends on the architecture.

arm.json has the names of Arm's cores, which the kernel does not report; its source is the Main ID Register's
fields in Arm's and the makers' reference manuals.
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import one_line, parse_cpu_list, whole_number
from mlbackends.base.tables import table
from mlbackends.host.host import Host

#: One paragraph of /proc/cpuinfo: keys in lower case; of keys that repeat, the first.
Block = dict[str, str]

Facts = dict[str, int | str]

_FIRST_READ = 16384
#: POWER9, and POWER8NVL and POWER8E, which are POWER8.
_POWER = pattern(r"POWER(\d{1,2})(?!\d)", re.IGNORECASE)
_FIRST_LITTLE_ENDIAN = 8
_POWERPC_64 = ("PPC970", "Cell", "PA6T", "RS64")


def read_blocks(host: Host) -> list[Block]:
    """Return the paragraphs of /proc/cpuinfo, all of them if CPUs may differ; [] if there is none.

    On x86 only the first: the kernel takes 10 microseconds and more for each CPU's paragraph, and what
    differs between CPUs is in /sys.
    """
    if host.platform == "win32":
        from mlbackends.host.windows.cpu import processor_blocks

        return processor_blocks(host)
    text = host.read("/proc/cpuinfo", _FIRST_READ)
    blocks = parse_blocks(text)
    if len(text) < _FIRST_READ // 2:
        return blocks
    folder = "/sys/devices/system/cpu"
    has_folder = bool(parse_cpu_list(host.read(f"{folder}/online")))
    if blocks and "flags" in blocks[0] and has_folder and host.exists(f"{folder}/cpu0/topology"):
        return blocks[:1]
    return parse_blocks(host.read("/proc/cpuinfo"))


def parse_blocks(text: str) -> list[Block]:
    """Return the paragraphs of a /proc/cpuinfo; lines without a colon are left out.

    Old kernels for Arm begin with the processor's name under the same key as its number, and list all
    numbers in one paragraph.
    """
    blocks: list[Block] = [{}]
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        key, value = key.strip().lower(), value.strip()
        if separator and key == "processor" and not value.isdecimal():
            key = "model name"
        if not line.strip() or (key == "processor" and key in blocks[-1]):
            blocks.append({})
        if separator:
            blocks[-1].setdefault(key, value)
    return [block for block in blocks if block]


def architecture_of(machine: str, blocks: list[Block]) -> str:
    """Return x86_64, x86, aarch64, arm, ppc64le, s390x, riscv64, ...; "" if that is not known.

    machine: from uname. A recorded machine may lack it; then the form of /proc/cpuinfo decides.
    """
    if machine:
        name: str = table("host/cpu/names")["architectures"].get(machine.lower(), machine)
        return name
    for block in blocks:
        if "cpu implementer" in block:
            return "aarch64" if "asimd" in block.get("features", "").split() else "arm"
        if "flags" in block:
            return "x86_64" if "lm" in block["flags"].split() else "x86"
        if block.get("vendor_id") == "IBM/S390":
            return "s390x"
        if block.get("isa", "").startswith("rv64"):
            return "riscv64"
        if family := re.match("mips|loongarch", block.get("isa", "")):
            return family[0] + ("64" if "64" in block["isa"] else "")
        if generation := _POWER.match(block.get("cpu", "")):
            return "ppc64le" if int(generation[1]) >= _FIRST_LITTLE_ENDIAN else "ppc64"
        if "cpu" in block and "clock" in block:
            return "ppc64" if block["cpu"].startswith(_POWERPC_64) else "ppc"
        if block.get("arch", "").startswith("IA-64"):
            return "ia64"
        if block.get("type", "") in ("sun4u", "sun4v"):
            return "sparc64"
    return ""


def identity(architecture: str, blocks: list[Block]) -> Facts:
    """Return the facts of the CPU's identity: vendor, model_name, family and so on."""
    described: Facts = {
        "vendor_id": first(blocks, "vendor_id"),
        "model_name": first(blocks, "model name", "cpu model", "cpu"),
    }
    if str(described["model_name"]).startswith("Loongson"):
        described["vendor"] = "Loongson"
    if architecture in _DESCRIBE:
        described = _DESCRIBE[architecture](blocks)
    facts = {name: one_line(value) if isinstance(value, str) else value for name, value in described.items()}
    if facts.get("model_name"):
        facts.setdefault("model_name_source", "kernel")
    return {name: value for name, value in facts.items() if value != ""}


def processor_numbers(blocks: list[Block]) -> tuple[int, ...]:
    """Return the numbers of the CPUs that /proc/cpuinfo lists, sorted."""
    pairs = [pair for block in blocks for pair in block.items()]
    listed = [value for key, value in pairs if key == "processor"]
    # s390x has a count, and "processor 0: version = ..."; SPARC "CPU0: online".
    listed += [key[10:] for key, _ in pairs if key.startswith("processor ")]
    listed += [key[3:] for key, value in pairs if key[:3] == "cpu" and value == "online"]
    numbers = parse_cpu_list(" ".join(listed))
    count = whole_number(first(blocks, "# processors"), 1, 8192) or 0
    return numbers if len(numbers) >= count else tuple(range(count))


def first(blocks: list[Block], *keys: str) -> str:
    """Return the first value that a paragraph has for one of the keys, "" if none has one."""
    return next((block[key] for key in keys for block in blocks if block.get(key)), "")


def _x86(blocks: list[Block]) -> Facts:
    vendor_id = first(blocks, "vendor_id")
    name = first(blocks, "model name")
    facts: Facts = {
        "vendor_id": vendor_id,
        "vendor": table("host/cpu/names")["x86_vendors"].get(vendor_id, vendor_id),
        "model_name": "" if name == "unknown" else " ".join(name.split()),
        "microcode": first(blocks, "microcode"),
    }
    for fact, key in (("family", "cpu family"), ("model", "model"), ("stepping", "stepping")):
        number = whole_number(first(blocks, key), highest=0xFFFF)
        if number is not None:
            facts[fact] = number
    return facts


def _arm(blocks: list[Block]) -> Facts:
    kernel_name = first(blocks, "model name")
    cores = [design for block in blocks if (design := _design(block))]
    if not cores:
        return {"model_name": kernel_name}
    facts = common_facts(cores)
    by_vendor: dict[str, dict[str, None]] = {}
    for core in cores:
        by_vendor.setdefault(core.vendor, {})[core.name if core.is_named else ""] = None
    if not any("" in names for names in by_vendor.values()):
        named = (f"{vendor} {' + '.join(names)}".strip() for vendor, names in by_vendor.items())
        facts |= {"model_name": " + ".join(named), "model_name_source": "part-number"}
    elif kernel_name:
        facts["model_name"] = kernel_name
    return facts


class Design(Struct, frozen=True):
    """A core's design: key is equal for cores of one kind; name is "" or numbers if no table has it."""

    key: str
    name: str
    vendor: str = ""
    vendor_id: str = ""
    part: str = ""
    revision: str = ""
    is_named: bool = True


def designs(blocks: list[Block]) -> dict[int, Design]:
    """Return the design of each CPU of an Arm or RISC-V machine, by its number, where it is stated."""
    by_cpu = {}
    for block in blocks:
        cpu, design = whole_number(block.get("processor", "")), _design(block)
        if cpu is not None and design:
            by_cpu[cpu] = design
    return by_cpu


def design_of_midr(register: int) -> Design:
    """Return the design of an Arm core from its Main ID Register."""
    implementer, part, variant, revision = ((register >> shift) & mask for shift, mask in _MIDR_FIELDS)
    return _arm_design(implementer, part, f"r{variant}p{revision}")


_MIDR_FIELDS = ((24, 0xFF), (4, 0xFFF), (20, 15), (0, 15))


def common_facts(cores: Sequence[Design]) -> Facts:
    """Return vendor, part and revision of some cores, each if it is the same for all of them."""
    facts: Facts = {}
    for name in ("vendor_id", "vendor", "part", "revision"):
        values = {getattr(core, name) for core in cores}
        if len(values) == 1 and (value := values.pop()):
            facts[name] = value
    return facts


def _design(block: Block) -> Design | None:
    implementer = whole_number(block.get("cpu implementer", ""), highest=0xFF)
    part = whole_number(block.get("cpu part", ""), highest=0xFFF)
    if implementer is not None and part is not None:
        variant = whole_number(block.get("cpu variant", ""), highest=15)
        revision = whole_number(block.get("cpu revision", ""), highest=15)
        both = variant is not None and revision is not None
        return _arm_design(implementer, part, f"r{variant}p{revision}" if both else "")
    name = block.get("uarch") or block.get("marchid", "")
    numbers = [block.get(key, "") for key in ("mvendorid", "marchid", "uarch")]
    return Design(" ".join(numbers), name, vendor_id=numbers[0]) if name else None


def _arm_design(implementer: int, part: int, revision: str) -> Design:
    maker = table("host/cpu/arm").get(f"{implementer:#04x}", {})
    parts = maker.get("parts", {})
    variant = revision.partition("p")[0]  # two cores may differ in it alone
    name = parts.get(f"{part:#05x}/{variant}") or parts.get(f"{part:#05x}", "")
    key = f"{implementer:#04x}/{part:#05x}"
    vendor = maker.get("name", "")
    numbers = (f"{implementer:#04x}", f"{part:#05x}")
    return Design(key, name or key, vendor, *numbers, revision, bool(name))


def _power(blocks: list[Block]) -> Facts:
    cpu = first(blocks, "cpu")
    facts: Facts = {
        "vendor": "IBM" if cpu.startswith(("POWER", "Power")) else "",
        "model_name": cpu.partition(",")[0].strip(),
        "revision": first(blocks, "revision"),
    }
    if generation := _POWER.match(cpu):
        facts["power_generation"] = int(generation[1])
    return facts


def _z(blocks: list[Block]) -> Facts:
    machine = first(blocks, "machine")
    lines = (line for block in blocks for key, line in block.items() if key.startswith("processor "))
    for line in lines if not machine else ():  # of each CPU that is on
        if match := re.search(r"machine = (\w+)", line):
            machine = match[1]
    vendor_id = first(blocks, "vendor_id")
    facts: Facts = {
        "vendor_id": vendor_id,
        "vendor": "IBM" if vendor_id.startswith("IBM") else "",
        "part": machine,
    }
    if name := table("host/cpu/names")["z_machines"].get(machine):
        facts |= {"model_name": f"IBM {name}", "model_name_source": "part-number"}
    return facts


def _riscv(blocks: list[Block]) -> Facts:
    vendor_id = first(blocks, "mvendorid")
    number = whole_number(vendor_id) or 0
    vendors = table("host/cpu/names")["riscv_vendors"]
    design = first(blocks, "uarch").partition(",")[0]  # of the device tree: "sifive,u74-mc"
    return {
        "vendor_id": vendor_id if number else "",
        "vendor": vendors.get(f"{number:#x}") or vendors.get(design, ""),
        "model_name": first(blocks, "model name", "uarch"),
        "isa": first(blocks, "isa"),
    }


_DESCRIBE = {
    "x86_64": _x86,
    "x86": _x86,
    "aarch64": _arm,
    "arm": _arm,
    "ppc64le": _power,
    "ppc64": _power,
    "s390x": _z,
    "riscv64": _riscv,
}


def cpu_flags(host: Host) -> frozenset[str]:
    """Return the instruction sets of the first processor by Linux's names, empty if unknown."""
    if host.platform == "win32":
        return frozenset(" ".join(block["flags"] for block in read_blocks(host)[:1]).split())
    for line in host.read("/proc/cpuinfo", 16 << 10).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


_POWER_OF_ARCHSPEC = {"ppc64": (7, 8, 9, 10), "ppc64le": (8, 9, 10)}


def microarchitecture(architecture: str, facts: dict[str, Any]) -> dict[str, str]:
    """Return `microarchitecture` and `archspec`, the name by which Spack and EasyBuild choose builds.

    facts: those of a CPU's identity; {} if neither name is known. Cores of several kinds have one name on
    x86, and one each on Arm: "Cortex-X925 + Cortex-A725".
    Source: Linux, arch/x86/include/asm/intel-family.h and arch/x86/kernel/cpu/amd.c; archspec's
    microarchitectures.json, where a CPU that is newer than its newest entry has the name of that entry.
    """
    names = table("host/cpu/microarchitectures")
    model_name = str(facts.get("model_name", ""))
    name = archspec = ""
    if "family" in facts:
        entry: dict[str, str] = next((row for row in names["x86"] if _is_model(row, facts)), {})
        name, archspec = entry.get("name", ""), entry.get("archspec", "")
    elif generation := facts.get("power_generation"):
        name = f"POWER{generation}"
        if generation in _POWER_OF_ARCHSPEC.get(architecture, ()):
            archspec = f"power{generation}{'le' if architecture == 'ppc64le' else ''}"
    elif facts.get("model_name_source") == "part-number":
        name = model_name.removeprefix(f"{facts.get('vendor', '')} ")
    elif match := re.match(r"Apple (M\d+)|(Spacemit\(R\) X\d+$|[a-z]+,[\w-]+$)", model_name):
        name = match[1] or match[2]  # macOS; RISC-V, by the maker or by the device tree
    if not archspec:
        chip = re.search(r"\((M\d)\b", name)  # "Firestorm (M1 Pro)"
        archspec = names["archspec"].get(chip[1] if chip else name, "")
    facts = {"microarchitecture": name, "archspec": archspec}
    return {fact: value for fact, value in facts.items() if value}


def _is_model(entry: dict[str, Any], facts: dict[str, Any]) -> bool:
    """Return whether an entry's ranges, such as "0x10-0x1f 0x61", have a CPU's model and stepping."""
    if (entry["vendor"], entry["family"]) != (facts.get("vendor_id"), facts["family"]):
        return False
    for ranges, number in (
        (entry["models"], facts.get("model")),
        (entry.get("steppings", ""), facts.get("stepping")),
    ):
        bounds = [part.partition("-") for part in ranges.split()]
        if bounds and not any(
            number is not None and int(low, 0) <= number <= int(high or low, 0) for low, _, high in bounds
        ):
            return False
    return True

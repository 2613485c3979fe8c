"""Who made the CPU and what it is called: /proc/cpuinfo, whose form each architecture chose.

Names of Arm cores by implementer and part, which the kernel does not tell.

Source: the Main ID Register's fields in Arm's and the makers' reference manuals.
"""

import re

from mlbackends.host.host import Host
from mlbackends.host.quantities import one_line, parse_cpu_list, whole_number

Block = dict[str, str]
"""One paragraph of /proc/cpuinfo: keys in lower case; of keys that repeat, the first."""

Facts = dict[str, int | str]

_FIRST_READ = 16384
_ARCHITECTURES = {
    "amd64": "x86_64",
    "arm64": "aarch64",
    "i386": "x86",
    "i486": "x86",
    "i586": "x86",
    "i686": "x86",
    "armv6l": "arm",
    "armv7l": "arm",
    "armv8l": "arm",
}
_X86_VENDORS = {
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "HygonGenuine": "Hygon",
    "CentaurHauls": "Centaur",
    "Shanghai": "Zhaoxin",
    "VirtualApple": "Apple",
    "GenuineTMx86": "Transmeta",
}
_RISCV_VENDORS = {
    0x31E: "Andes",
    0x489: "SiFive",
    0x5B7: "T-Head",
    0x710: "SpacemiT",
}
_Z_MACHINES = {
    "2964": "z13",
    "2965": "z13s",
    "3906": "z14",
    "3907": "z14 ZR1",
    "8561": "z15",
    "8562": "z15 T02",
    "3931": "z16",
    "3932": "z16 A02",
    "9175": "z17",
    "9176": "z17 ME1",
}


def read_blocks(host: Host) -> list[Block]:
    """Return the paragraphs of /proc/cpuinfo, whole where CPUs may differ; [] where there is none.

    On x86 only the first few: the kernel takes 10 microseconds and more for each CPU's, and what
    differs there between CPUs stands in /sys.
    """
    text = host.read("/proc/cpuinfo", _FIRST_READ)
    blocks = parse_blocks(text)
    if len(text) < _FIRST_READ // 2:
        return blocks
    if blocks and "flags" in blocks[0] and _has_topology(host):
        return blocks[:1]
    return parse_blocks(host.read("/proc/cpuinfo"))


def _has_topology(host: Host) -> bool:
    folder = "/sys/devices/system/cpu"
    return bool(parse_cpu_list(host.read(f"{folder}/online"))) and host.exists(
        f"{folder}/cpu0/topology"
    )


def parse_blocks(text: str) -> list[Block]:
    """Return the paragraphs of a /proc/cpuinfo; lines without a colon are left out."""
    blocks: list[Block] = []
    block: Block = {}
    for line in text.splitlines():
        if not line.strip():
            if block:
                blocks.append(block)
            block = {}
            continue
        key, separator, value = line.partition(":")
        if separator:
            block.setdefault(key.strip().lower(), value.strip())
    if block:
        blocks.append(block)
    return blocks


def architecture_of(machine: str, blocks: list[Block]) -> str:
    """Return x86_64, x86, aarch64, arm, ppc64le, s390x, riscv64, ...; "" if nothing tells.

    machine: as uname has it. A recorded machine may lack it; then the form of /proc/cpuinfo tells.
    """
    if machine:
        return _ARCHITECTURES.get(machine.lower(), machine)
    for block in blocks:
        if "cpu implementer" in block:
            return "aarch64" if "asimd" in block.get("features", "").split() else "arm"
        if "flags" in block:
            return "x86_64" if "lm" in block["flags"].split() else "x86"
        if block.get("vendor_id") == "IBM/S390":
            return "s390x"
        if block.get("isa", "").startswith("rv64"):
            return "riscv64"
        if re.match(r"POWER\d", block.get("cpu", "")):
            return "ppc64le"
    return ""


def identity(architecture: str, blocks: list[Block]) -> Facts:
    """Return the facts of who made it and what it is: vendor, model_name, family and so on."""
    told = _DESCRIBE.get(architecture, _plain)(blocks)
    facts = {name: one_line(it) if isinstance(it, str) else it for name, it in told.items()}
    return {name: value for name, value in facts.items() if value != ""}


def _first(blocks: list[Block], key: str) -> str:
    return next((block[key] for block in blocks if block.get(key)), "")


def _plain(blocks: list[Block]) -> Facts:
    name = _first(blocks, "model name") or _first(blocks, "cpu model") or _first(blocks, "cpu")
    facts: Facts = {"vendor_id": _first(blocks, "vendor_id"), "model_name": name}
    return _named_by_kernel(facts)


def _x86(blocks: list[Block]) -> Facts:
    vendor_id = _first(blocks, "vendor_id")
    name = _first(blocks, "model name")
    facts: Facts = {
        "vendor_id": vendor_id,
        "vendor": _X86_VENDORS.get(vendor_id, vendor_id),
        "model_name": "" if name == "unknown" else " ".join(name.split()),
        "microcode": _first(blocks, "microcode"),
    }
    for fact, key in (("family", "cpu family"), ("model", "model"), ("stepping", "stepping")):
        number = whole_number(_first(blocks, key), highest=0xFFFF)
        if number is not None:
            facts[fact] = number
    return _named_by_kernel(facts)


def _arm(blocks: list[Block]) -> Facts:
    cores = arm_cores(blocks)
    kernel_name = _first(blocks, "model name")
    if not cores:
        return _named_by_kernel({"model_name": kernel_name or _first(blocks, "processor")})
    implementer, part = cores[0]
    vendor = IMPLEMENTERS.get(implementer, "")
    names = [core_name(*core) for core in dict.fromkeys(cores)]
    facts: Facts = {
        "vendor_id": f"{implementer:#04x}",
        "vendor": vendor,
        "part": f"{part:#05x}",
    }
    variant = whole_number(_first(blocks, "cpu variant"), highest=15)
    revision = whole_number(_first(blocks, "cpu revision"), highest=15)
    if variant is not None and revision is not None:
        facts["revision"] = f"r{variant}p{revision}"
    if all(names):
        facts["model_name"] = f"{vendor} {' + '.join(names)}".strip()
        facts["model_name_source"] = "part-number"
    elif kernel_name:
        facts |= {"model_name": kernel_name, "model_name_source": "kernel"}
    return facts


def arm_cores(blocks: list[Block]) -> list[tuple[int, int]]:
    """Return (implementer, part) of each CPU of an Arm machine, in the kernel's order."""
    cores = []
    for block in blocks:
        implementer = whole_number(block.get("cpu implementer", ""), highest=0xFF)
        part = whole_number(block.get("cpu part", ""), highest=0xFFF)
        if implementer is not None and part is not None:
            cores.append((implementer, part))
    return cores


def _power(blocks: list[Block]) -> Facts:
    told = _first(blocks, "cpu")
    facts: Facts = {
        "vendor": "IBM" if told.startswith(("POWER", "Power")) else "",
        "model_name": told.partition(",")[0].strip(),
        "revision": _first(blocks, "revision"),
    }
    if generation := re.match(r"POWER(\d{1,2})\b", told, re.IGNORECASE):
        facts["power_generation"] = int(generation[1])
    return _named_by_kernel(facts)


def _z(blocks: list[Block]) -> Facts:
    machine = _first(blocks, "machine")
    if not machine and (told := re.search(r"machine = (\w+)", _first(blocks, "processor 0"))):
        machine = told[1]
    vendor_id = _first(blocks, "vendor_id")
    facts: Facts = {
        "vendor_id": vendor_id,
        "vendor": "IBM" if vendor_id.startswith("IBM") else "",
        "part": machine,
    }
    if name := _Z_MACHINES.get(machine):
        facts |= {"model_name": f"IBM {name}", "model_name_source": "part-number"}
    return facts


def _riscv(blocks: list[Block]) -> Facts:
    vendor_id = _first(blocks, "mvendorid")
    number = whole_number(vendor_id)
    facts: Facts = {
        "vendor_id": "" if number == 0 else vendor_id,
        "vendor": _RISCV_VENDORS.get(number or 0, ""),
        "model_name": _first(blocks, "model name") or _first(blocks, "uarch"),
        "isa": _first(blocks, "isa"),
    }
    return _named_by_kernel(facts)


def _named_by_kernel(facts: Facts) -> Facts:
    return facts | {"model_name_source": "kernel"} if facts.get("model_name") else facts


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


IMPLEMENTERS = {
    0x41: "Arm",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x49: "Infineon",
    0x4D: "Motorola",
    0x4E: "NVIDIA",
    0x50: "Applied Micro",
    0x51: "Qualcomm",
    0x53: "Samsung",
    0x56: "Marvell",
    0x61: "Apple",
    0x66: "Faraday",
    0x69: "Intel",
    0x6D: "Microsoft",
    0x70: "Phytium",
    0xC0: "Ampere",
}

PARTS = {
    0x41: {
        0xB76: "ARM1176",
        0xC07: "Cortex-A7",
        0xC08: "Cortex-A8",
        0xC09: "Cortex-A9",
        0xC0E: "Cortex-A17",
        0xC0F: "Cortex-A15",
        0xD01: "Cortex-A32",
        0xD02: "Cortex-A34",
        0xD03: "Cortex-A53",
        0xD04: "Cortex-A35",
        0xD05: "Cortex-A55",
        0xD06: "Cortex-A65",
        0xD07: "Cortex-A57",
        0xD08: "Cortex-A72",
        0xD09: "Cortex-A73",
        0xD0A: "Cortex-A75",
        0xD0B: "Cortex-A76",
        0xD0C: "Neoverse-N1",
        0xD0D: "Cortex-A77",
        0xD0E: "Cortex-A76AE",
        0xD40: "Neoverse-V1",
        0xD41: "Cortex-A78",
        0xD42: "Cortex-A78AE",
        0xD43: "Cortex-A65AE",
        0xD44: "Cortex-X1",
        0xD46: "Cortex-A510",
        0xD47: "Cortex-A710",
        0xD48: "Cortex-X2",
        0xD49: "Neoverse-N2",
        0xD4A: "Neoverse-E1",
        0xD4B: "Cortex-A78C",
        0xD4C: "Cortex-X1C",
        0xD4D: "Cortex-A715",
        0xD4E: "Cortex-X3",
        0xD4F: "Neoverse-V2",
        0xD80: "Cortex-A520",
        0xD81: "Cortex-A720",
        0xD82: "Cortex-X4",
        0xD83: "Neoverse-V3AE",
        0xD84: "Neoverse-V3",
        0xD85: "Cortex-X925",
        0xD87: "Cortex-A725",
        0xD88: "Cortex-A520AE",
        0xD89: "Cortex-A720AE",
        0xD8A: "C1-Nano",
        0xD8B: "C1-Pro",
        0xD8C: "C1-Ultra",
        0xD8E: "Neoverse-N3",
        0xD8F: "Cortex-A320",
        0xD90: "C1-Premium",
    },
    0x42: {0x516: "ThunderX2"},
    0x43: {0x0A1: "ThunderX", 0x0AF: "ThunderX2", 0x0B8: "ThunderX3"},
    0x46: {0x001: "A64FX", 0x003: "MONAKA"},
    0x48: {0xD01: "TaiShan v110 (Kunpeng 920)", 0xD02: "TaiShan v120 (Kunpeng 920B)"},
    0x4E: {0x000: "Denver", 0x003: "Denver 2", 0x004: "Carmel", 0x010: "Olympus"},
    0x50: {0x000: "X-Gene"},
    0x51: {0x001: "Oryon", 0x800: "Kryo 2xx Gold", 0x801: "Kryo 2xx Silver", 0xC00: "Falkor"},
    0x61: {
        0x022: "Icestorm (M1)",
        0x023: "Firestorm (M1)",
        0x024: "Icestorm (M1 Pro)",
        0x025: "Firestorm (M1 Pro)",
        0x028: "Icestorm (M1 Max)",
        0x029: "Firestorm (M1 Max)",
        0x032: "Blizzard (M2)",
        0x033: "Avalanche (M2)",
        0x034: "Blizzard (M2 Pro)",
        0x035: "Avalanche (M2 Pro)",
        0x038: "Blizzard (M2 Max)",
        0x039: "Avalanche (M2 Max)",
    },
    0x6D: {0xD49: "Azure Cobalt 100"},
    0x70: {0x662: "FTC662", 0x663: "FTC663", 0x862: "FTC862"},
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1A", 0xAC5: "Ampere-1B"},
}


def core_name(implementer: int, part: int) -> str:
    """Return a core's name, "" for one that is not in the table: "Neoverse-V2"."""
    return PARTS.get(implementer, {}).get(part, "")

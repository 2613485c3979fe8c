"""Who made the CPU and what it is called: /proc/cpuinfo, whose form each architecture chose.

arm.json has the names of Arm's cores, which the kernel does not tell; its source is the Main ID Register's
fields in Arm's and the makers' reference manuals.
"""

import re

from mlbackends.host.host import Host
from mlbackends.host.quantities import one_line, parse_cpu_list, whole_number
from mlbackends.model.tables import table

Block = dict[str, str]
"""One paragraph of /proc/cpuinfo: keys in lower case; of keys that repeat, the first."""

Facts = dict[str, int | str]

_FIRST_READ = 16384


def read_blocks(host: Host) -> list[Block]:
    """Return the paragraphs of /proc/cpuinfo, whole where CPUs may differ; [] where there is none.

    On x86 only the first few: the kernel takes 10 microseconds and more for each CPU's, and what
    differs there between CPUs stands in /sys.
    """
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
    """Return the paragraphs of a /proc/cpuinfo; lines without a colon are left out."""
    blocks: list[Block] = [{}]
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            blocks[-1].setdefault(key.strip().lower(), value.strip())
        elif not line.strip():
            blocks.append({})
    return [block for block in blocks if block]


def architecture_of(machine: str, blocks: list[Block]) -> str:
    """Return x86_64, x86, aarch64, arm, ppc64le, s390x, riscv64, ...; "" if nothing tells.

    machine: as uname has it. A recorded machine may lack it; then the form of /proc/cpuinfo tells.
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
        if re.match(r"POWER\d", block.get("cpu", "")):
            return "ppc64le"
    return ""


def identity(architecture: str, blocks: list[Block]) -> Facts:
    """Return the facts of who made it and what it is: vendor, model_name, family and so on."""
    described: Facts = {
        "vendor_id": first(blocks, "vendor_id"),
        "model_name": first(blocks, "model name", "cpu model", "cpu"),
    }
    if architecture in _DESCRIBE:
        described = _DESCRIBE[architecture](blocks)
    facts = {
        name: one_line(value) if isinstance(value, str) else value
        for name, value in described.items()
    }
    if facts.get("model_name"):
        facts.setdefault("model_name_source", "kernel")
    return {name: value for name, value in facts.items() if value != ""}


def first(blocks: list[Block], *keys: str) -> str:
    """Return the first value that a paragraph has for one of some keys, "" without."""
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
    cores = arm_cores(blocks)
    kernel_name = first(blocks, "model name")
    if not cores:
        return {"model_name": kernel_name or first(blocks, "processor")}
    implementer, part = cores[0]
    vendor = table("host/cpu/arm").get(f"{implementer:#04x}", {}).get("name", "")
    names = [core_name(*core) for core in dict.fromkeys(cores)]
    facts: Facts = {
        "vendor_id": f"{implementer:#04x}",
        "vendor": vendor,
        "part": f"{part:#05x}",
    }
    variant = whole_number(first(blocks, "cpu variant"), highest=15)
    revision = whole_number(first(blocks, "cpu revision"), highest=15)
    if variant is not None and revision is not None:
        facts["revision"] = f"r{variant}p{revision}"
    if all(names):
        facts["model_name"] = f"{vendor} {' + '.join(names)}".strip()
        facts["model_name_source"] = "part-number"
    elif kernel_name:
        facts["model_name"] = kernel_name
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


def core_name(implementer: int, part: int) -> str:
    """Return an Arm core's name, "" for one that is not in the table: "Neoverse-V2"."""
    parts: dict[str, str] = table("host/cpu/arm").get(f"{implementer:#04x}", {}).get("parts", {})
    return parts.get(f"{part:#05x}", "")


def _power(blocks: list[Block]) -> Facts:
    cpu = first(blocks, "cpu")
    facts: Facts = {
        "vendor": "IBM" if cpu.startswith(("POWER", "Power")) else "",
        "model_name": cpu.partition(",")[0].strip(),
        "revision": first(blocks, "revision"),
    }
    if generation := re.match(r"POWER(\d{1,2})\b", cpu, re.IGNORECASE):
        facts["power_generation"] = int(generation[1])
    return facts


def _z(blocks: list[Block]) -> Facts:
    machine = first(blocks, "machine")
    if not machine and (found := re.search(r"machine = (\w+)", first(blocks, "processor 0"))):
        machine = found[1]
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
    return {
        "vendor_id": "" if whole_number(vendor_id) == 0 else vendor_id,
        "vendor": table("host/cpu/names")["riscv_vendors"].get(f"{number:#x}", ""),
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

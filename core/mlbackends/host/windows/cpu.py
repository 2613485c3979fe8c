r"""A Windows machine's processors in Linux's forms, and facts that only Windows reports.

Source: Intel SDM 2A and AMD APM 3, CPUID; winnt.h, PF_... of IsProcessorFeaturePresent; the registry's
HARDWARE\DESCRIPTION\System\CentralProcessor, whose "CP 4000" is the Main ID Register of an Arm core.
"""

from collections.abc import Sequence
from typing import Any

from mlbackends.base.quantities import format_cpu_list, parse_cpu_list
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.model.records import FactValue, nonempty

PROCESSOR = "HKLM\\HARDWARE\\DESCRIPTION\\System\\CentralProcessor"
POWER_SCHEMES = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\Power\\User\\PowerSchemes"

_MEGAHERTZ = 1_000_000
#: Windows' names for what files of Linux list.
_RELATIONS = {
    "core_cpus_list": "cores",
    "thread_siblings_list": "cores",
    "package_cpus_list": "packages",
    "die_cpus_list": "dies",
}
_KINDS = ("performance", "efficiency", "low-power")
_MIDR_FIELDS = (
    ("implementer", 24, 0xFF),
    ("part", 4, 0xFFF),
    ("variant", 20, 15),
    ("revision", 0, 15),
)
_REGISTERS = ("eax", "ebx", "ecx", "edx")


@once_per_host
def processors(host: Host) -> dict[str, Any]:
    """Return what `calls.processors` does; {} if it was not recorded."""
    return host.system("processors") or {}


def processor_blocks(host: Host) -> list[dict[str, str]]:
    """Return the paragraphs that Linux would have in /proc/cpuinfo: one on x86, one a CPU on Arm."""
    leaves = host.system("cpuid") or {}
    leaves = leaves if {"0", "1"} <= leaves.keys() else {}
    numbers = {str(number) for number in host.system("processor_features") or ()}
    rows = [
        host.registry(
            f"{PROCESSOR}\\{name}",
            *("ProcessorNameString", "VendorIdentifier", "Identifier", "Update Revision"),
            "CP 4000",
        )
        for name in (host.registry_keys(PROCESSOR)[: None if not leaves else 1])
    ]
    first = rows[0] if rows else {}
    name = str(first.get("ProcessorNameString", "")).strip()
    if isinstance(first.get("CP 4000"), int):
        flags = " ".join(_present("arm", numbers))
        return [
            {
                "processor": str(number),
                "model name": name,
                "features": flags,
                **{
                    f"cpu {field}": hex(int.from_bytes(binary(row.get("CP 4000")), "little") >> at & mask)
                    for field, at, mask in _MIDR_FIELDS
                },
            }
            for number, row in enumerate(rows)
        ]
    if not leaves and not first:
        return []
    words = str(first.get("Identifier", "")).split()
    block = dict(zip(("cpu family", "model", "stepping"), words[2::2], strict=False))
    block |= {"vendor_id": str(first.get("VendorIdentifier", "")), "model name": name}
    revision = binary(first.get("Update Revision"))
    if number := int.from_bytes(revision[4:], "little") or int.from_bytes(revision[:4], "little"):
        block["microcode"] = hex(number)
    listed = features_of_cpuid(leaves) if leaves else _present("x86", numbers)
    return [{**block, **(_identity(leaves) if leaves else {}), "flags": " ".join(listed)}]


def binary(value: Any) -> bytes:
    """Return the bytes of a value of the registry: of a binary one, or of a number; b"" for others."""
    if isinstance(value, int):
        return value.to_bytes(8, "little") if 0 <= value < 1 << 64 else b""
    try:
        return bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        return b""


def _present(kind: str, numbers: set[str]) -> list[str]:
    names: dict[str, str] = table("host/windows/cpuid")["feature_numbers"][kind]
    return [name for number, name in names.items() if number in numbers]


def _identity(leaves: dict[str, list[int]]) -> dict[str, str]:
    """Return vendor, name, family, model and stepping as CPUID has them."""
    _, b, c, d = leaves["0"]
    signature = leaves["1"][0]
    family, model = signature >> 8 & 15, signature >> 4 & 15
    if family in (6, 15):
        model |= signature >> 12 & 0xF0
    family += (signature >> 20 & 0xFF) if family == 15 else 0
    brand = b"".join(
        register.to_bytes(4, "little")
        for leaf in ("80000002", "80000003", "80000004")
        for register in leaves.get(leaf, ())
    )
    return {
        "vendor_id": signature_text(b, d, c),
        "model name": brand.split(b"\0")[0].decode("ascii", "replace").strip(),
        "cpu family": str(family),
        "model": str(model),
        "stepping": str(signature & 15),
    }


def signature_text(*registers: int) -> str:
    """Return the letters that registers hold: "GenuineIntel", "Microsoft Hv"."""
    data = b"".join(register.to_bytes(4, "little") for register in registers)
    return data.rstrip(b"\0").decode("ascii", "replace")


def features_of_cpuid(leaves: dict[str, list[int]]) -> list[str]:
    """Return the features by Linux's names, without those whose registers the system does not save."""
    features = []
    for leaf, registers in table("host/windows/cpuid").items():
        if leaf in leaves:
            for register, names in registers.items():
                value = leaves[leaf][_REGISTERS.index(register)]
                features += [
                    name for bit, name in enumerate(names.split()) if value >> bit & 1 and name != "-"
                ]
    enabled = leaves.get("xcr0", [0])[0]
    needs = table("host/windows/cpuid")["needs_xcr0"]
    lost = [tuple(names) for mask, names in needs.items() if enabled & int(mask) != int(mask)]
    # "avx" is not the beginning of the names of AVX-512.
    begins = tuple(name for names in lost for name in (("avx2", "avx_") if names[0] == "avx" else names))
    whole = {name for names in lost if names[0] == "avx" for name in names}
    return [name for name in features if name not in whole and not name.startswith(begins)]


# ---- topology ------------------------------------------------------------------------------------


def groups(host: Host, cpus: Sequence[int], name: str) -> list[tuple[int, ...]]:
    """Return the groups of these CPUs that a file of that name lists under Linux; [] if none is known."""
    rows = processors(host).get(_RELATIONS.get(name, ""), ())
    chosen = set(cpus)
    lists = (parse_cpu_list(row["cpus"] if isinstance(row, dict) else row) for row in rows)
    return [group for listed in lists if (group := tuple(cpu for cpu in listed if cpu in chosen))]


def online_cpus(host: Host) -> tuple[int, ...]:
    """Return the numbers of all CPUs: 64 times the processor group, and the number in it."""
    rows = processors(host).get("groups") or processors(host).get("cores") or ()
    return tuple(sorted(cpu for row in rows for cpu in parse_cpu_list(row["cpus"])))


def kind_groups(host: Host) -> list[tuple[str, tuple[int, ...], dict[str, FactValue]]]:
    """Return each kind of core by its efficiency class, the fastest first; [] if all are equal."""
    by_class: dict[int, list[int]] = {}
    for row in processors(host).get("cores", ()):
        by_class.setdefault(row["efficiency_class"], []).extend(parse_cpu_list(row["cpus"]))
    if not 1 < len(by_class) <= len(_KINDS):
        return []
    return [
        (name, tuple(by_class[number]), _frequency(host, by_class[number]))
        for name, number in zip(_KINDS, sorted(by_class, reverse=True), strict=False)
    ]


def _frequency(host: Host, cpus: Sequence[int]) -> dict[str, FactValue]:
    """Return the base frequency of CPUs in the first group, and their current limit."""
    rows = host.system("processor_power") or []
    of_cpus = [rows[cpu] for cpu in cpus if cpu < len(rows)]
    base = max((row[0] for row in of_cpus), default=0)
    limit = max((row[2] for row in of_cpus), default=0)
    facts = {"base_hertz": base, "limit_hertz": limit if limit < base else 0}
    return {name: number * _MEGAHERTZ for name, number in facts.items() if number}


def frequency_facts(host: Host, kinds: Sequence[Any]) -> dict[str, FactValue]:
    """Return the frequencies of the fastest kind, the CPUs limited below theirs, and the power plan.

    Windows reports the base frequency as the highest; CPUID has the real highest of some Intel processors.
    """
    clock = host.registry(f"{PROCESSOR}\\0", "~MHz").get("~MHz", 0)
    leaf = (host.system("cpuid") or {}).get("16", [0, 0])
    rows = host.system("processor_power") or []
    schemes = host.registry(POWER_SCHEMES, "ActivePowerScheme", "ActiveOverlayAcPowerScheme")
    plans = table("host/windows/names")["power_plans"]
    facts = {
        "base_hertz": clock * _MEGAHERTZ if isinstance(clock, int) else 0,
        "max_hertz": (leaf[1] & 0xFFFF) * _MEGAHERTZ if not kinds else 0,
        **_frequency(host, kinds[0][1] if kinds else range(len(rows))),
        "capped_cpus": format_cpu_list(
            number
            for number, (base, _, limit) in enumerate(rows)
            if 0 < limit < base and len(rows) == len(online_cpus(host))  # of one group
        ),
        "power_plan": plans.get(str(schemes.get("ActivePowerScheme", "")).lower(), ""),
        "power_mode": plans.get(str(schemes.get("ActiveOverlayAcPowerScheme", "")).lower(), ""),
    }
    return nonempty({name: value or "" for name, value in facts.items()})


def groups_and_emulation(host: Host, architecture: str) -> dict[str, FactValue]:
    """Return the processor groups, where there are several, and whether an Arm machine emulates x86."""
    rows = processors(host).get("groups", ())
    is_emulated = host.system("native_machine") == "ARM64" and architecture == "x86_64"
    facts = {
        "processor_groups": [dict(row) for row in rows] if len(rows) > 1 else None,
        "translated": True if is_emulated else None,
    }
    return nonempty(facts)


def caches(host: Host, kinds: Sequence[Any]) -> list[dict[str, FactValue]]:
    """Return one record for each different cache: the fields of `topology.caches`."""
    of_kind = {cpu: name for name, group, _ in kinds for cpu in group}
    counts: dict[Any, list[int]] = {}
    for row in processors(host).get("caches", ()):
        cpus = parse_cpu_list(row["cpus"])
        owners = {of_kind.get(cpu, "") for cpu in cpus}
        names = ("level", "type", "size_bytes", "line_bytes", "ways")
        attributes = tuple((name, row[name]) for name in names if row.get(name))
        alike = (attributes, owners.pop() if len(owners) == 1 else "", len(cpus))
        counts.setdefault(alike, []).append(len(cpus))
    listed: list[dict[str, FactValue]] = [
        {
            **dict(attributes),
            "instances": len(numbers),
            "shared_by_cpus": sharing,
            **({"kind": kind} if kind else {}),
        }
        for (attributes, kind, sharing), numbers in counts.items()
    ]
    return sorted(listed, key=lambda cache: (cache["level"], cache["type"], -cache["size_bytes"]))  # type: ignore[operator]


def numa_nodes(host: Host) -> list[dict[str, FactValue]]:
    """Return each NUMA node's CPUs; Windows reports neither its memory nor distances."""
    rows = sorted(processors(host).get("nodes", ()), key=lambda row: row["node"])
    return [{"node": row["node"], "cpus": row["cpus"]} for row in rows]

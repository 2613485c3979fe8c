"""CPUs where there is no /proc/cpuinfo: macOS by its settings, the rest by py-cpuinfo and psutil.

Source: sysctl(3) of macOS, hw.* and machdep.cpu.*.
"""

import re

from mlbackends.host.cpu.features import canonical
from mlbackends.host.host import Host
from mlbackends.host.quantities import hertz, size_in_bytes, whole_number
from mlbackends.host.system.kernel import control_number
from mlbackends.model.records import FactValue

Facts = dict[str, FactValue]


def macos_facts(controls: dict[str, str]) -> Facts:
    """Return identity, counts, kinds of core, caches and frequency as `sysctl -a` has them."""
    name = controls.get("machdep.cpu.brand_string") or controls.get("hw.model", "")
    facts: Facts = {}
    if name:
        facts |= {"model_name": name, "model_name_source": "kernel"}
    vendor = controls.get("machdep.cpu.vendor", "")
    facts["vendor_id"] = vendor
    facts["vendor"] = {"GenuineIntel": "Intel"}.get(vendor, "Apple" if "Apple" in name else "")
    for fact in ("family", "model", "stepping"):
        number = whole_number(controls.get(f"machdep.cpu.{fact}", ""), highest=0xFFFF)
        if number is not None:
            facts[fact] = number
    counts = {
        "threads": ("hw.logicalcpu", "hw.ncpu"),
        "cores": ("hw.physicalcpu",),
        "sockets": ("hw.packages",),
        "max_hertz": ("hw.cpufrequency_max",),
        "min_hertz": ("hw.cpufrequency_min",),
        "base_hertz": ("hw.cpufrequency",),
        "sme_vector_bytes": ("hw.optional.arm.sme_max_svl_b",),
        "microcode": ("machdep.cpu.microcode_version",),
    }
    for fact, names in counts.items():
        number = control_number(controls, *names)
        if number is not None:
            facts[fact] = hex(number) if fact == "microcode" else number
    threads, cores = facts.get("threads"), facts.get("cores")
    if isinstance(threads, int) and isinstance(cores, int):
        facts["threads_per_core"] = -(-threads // cores)
    levels = _performance_levels(controls)
    if len(levels) > 1:
        facts["kinds"] = [level["kind"] for level in levels]
    if listed := _macos_caches(controls, levels):
        facts["caches"] = listed
    if controls.get("sysctl.proc_translated") == "1":
        facts["translated"] = True
    return {fact: value for fact, value in facts.items() if value != ""}


def _performance_levels(controls: dict[str, str]) -> list[dict[str, dict[str, FactValue]]]:
    """Return each perflevel's kind of core and its settings, the strongest first."""
    levels = []
    for number in range(whole_number(controls.get("hw.nperflevels", ""), 0, 8) or 0):
        prefix = f"hw.perflevel{number}."
        own: dict[str, FactValue] = {
            name.removeprefix(prefix): value
            for name, value in controls.items()
            if name.startswith(prefix)
        }
        threads = control_number(controls, f"{prefix}logicalcpu")
        cores = control_number(controls, f"{prefix}physicalcpu")
        if threads is None or cores is None:
            continue
        name = controls.get(f"{prefix}name") or ("performance", "efficiency")[min(number, 1)]
        kind: dict[str, FactValue] = {"name": name.lower(), "threads": threads, "cores": cores}
        levels.append({"kind": kind, "settings": own})
    return levels


def _macos_caches(
    controls: dict[str, str], levels: list[dict[str, dict[str, FactValue]]]
) -> list[dict[str, FactValue]]:
    line = control_number(controls, "hw.cachelinesize")
    kinds = (
        ("l1d", 1, "data"),
        ("l1i", 1, "instruction"),
        ("l2", 2, "unified"),
        ("l3", 3, "unified"),
    )
    found = []
    for name, level, kind in kinds:
        for source in levels or [{"kind": {}, "settings": {}}]:
            settings = source["settings"]
            told = (
                str(settings.get(f"{name}cachesize", ""))
                if levels
                else controls.get(f"hw.{name}cachesize", "")
            )
            size = size_in_bytes(told)
            if not size:
                continue
            cache: dict[str, FactValue] = {"level": level, "type": kind, "size_bytes": size}
            if line is not None:
                cache["line_bytes"] = line
            threads = source["kind"].get("threads")
            sharing = (
                1 if level == 1 else whole_number(str(settings.get(f"cpusper{name}", "")), 1, 1024)
            )
            if isinstance(threads, int) and sharing:
                cache |= {"instances": -(-threads // sharing), "shared_by_cpus": sharing}
            found.append(cache)
    return found


def other_facts(host: Host) -> tuple[Facts, frozenset[str]]:
    """Return facts and features where neither /proc nor sysctl tells: Windows and the rest.

    Only on the live machine. py-cpuinfo takes a second there; nothing else reads CPUID.
    """
    if not host.is_live:
        return {}, frozenset()
    import cpuinfo
    import psutil

    told = cpuinfo.get_cpu_info()
    name = str(told.get("brand_raw", ""))
    vendor = str(told.get("vendor_id_raw", ""))
    facts: Facts = {
        "vendor_id": vendor,
        "vendor": {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}.get(vendor, vendor),
        "model_name": name,
    }
    if name:
        facts["model_name_source"] = "kernel"
    for fact in ("family", "model", "stepping"):
        if isinstance(told.get(fact), int):
            facts[fact] = told[fact]
    for fact, count in (
        ("threads", psutil.cpu_count()),
        ("cores", psutil.cpu_count(logical=False)),
    ):
        if count:
            facts[fact] = count
    in_name = re.search(r"@ ([0-9]{1,2}\.[0-9]{1,2})GHz", name)
    base = hertz(in_name[1], 1_000_000_000) if in_name else None
    if base:
        facts["base_hertz"] = base
    flags = canonical([str(flag) for flag in told.get("flags", [])])
    return {fact: value for fact, value in facts.items() if value != ""}, flags

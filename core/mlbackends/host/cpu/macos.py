"""CPUs of macOS, by its settings.

Source: sysctl(3) of macOS, hw.* and machdep.cpu.*.
"""

from typing import Any

from mlbackends.base.tables import table
from mlbackends.host.quantities import size_in_bytes, whole_number
from mlbackends.host.system.kernel import control_number
from mlbackends.model.records import FactValue, nonempty

Facts = dict[str, FactValue]


def macos_facts(controls: dict[str, str]) -> Facts:
    """Return identity, counts, kinds of core, caches and frequency as `sysctl -a` has them."""
    name = controls.get("machdep.cpu.brand_string") or controls.get("hw.model", "")
    vendor = controls.get("machdep.cpu.vendor", "")
    facts: dict[str, Any] = {
        "model_name": name,
        "model_name_source": "kernel" if name else "",
        "vendor_id": vendor,
        "vendor": {"GenuineIntel": "Intel"}.get(vendor, "Apple" if "Apple" in name else ""),
    }
    for fact in ("family", "model", "stepping"):
        facts[fact] = whole_number(controls.get(f"machdep.cpu.{fact}", ""), highest=0xFFFF)
    facts |= {
        fact: control_number(controls, *names)
        for fact, names in table("host/cpu/macos")["numbers"].items()
    }
    if facts["microcode"]:
        facts["microcode"] = hex(facts["microcode"])
    if facts["threads"] and facts["cores"]:
        facts["threads_per_core"] = -(-facts["threads"] // facts["cores"])
    # The prefix of each perflevel's settings and its kind of core, the strongest first.
    levels: dict[str, Facts] = {}
    for number in range(whole_number(controls.get("hw.nperflevels", ""), 0, 8) or 0):
        prefix = f"hw.perflevel{number}."
        kind = controls.get(f"{prefix}name") or ("performance", "efficiency")[min(number, 1)]
        threads = control_number(controls, f"{prefix}logicalcpu")
        cores = control_number(controls, f"{prefix}physicalcpu")
        if threads is not None and cores is not None:
            levels[prefix] = {"name": kind.lower(), "threads": threads, "cores": cores}
    facts["kinds"] = list(levels.values()) if len(levels) > 1 else None
    facts["caches"] = _macos_caches(controls, levels or {"hw.": {}})
    facts["translated"] = True if controls.get("sysctl.proc_translated") == "1" else None
    return nonempty(facts)


def _macos_caches(controls: dict[str, str], levels: dict[str, Facts]) -> list[Facts]:
    line = control_number(controls, "hw.cachelinesize")
    found = []
    for name, level, kind in table("host/cpu/macos")["caches"]:
        for prefix, core in levels.items():
            size = size_in_bytes(controls.get(f"{prefix}{name}cachesize", ""))
            if not size:
                continue
            cache: Facts = {"level": level, "type": kind, "size_bytes": size}
            if line is not None:
                cache["line_bytes"] = line
            threads, sharing = core.get("threads"), 1 if level == 1 else None
            if level > 1:
                sharing = whole_number(controls.get(f"{prefix}cpusper{name}", ""), 1, 1024)
            if isinstance(threads, int) and sharing:
                cache |= {"instances": -(-threads // sharing), "shared_by_cpus": sharing}
            if len(levels) > 1:
                cache["kind"] = core["name"]
            found.append(cache)
    return found

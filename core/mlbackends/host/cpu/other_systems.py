"""CPUs of macOS by its settings, and by py-cpuinfo those of systems that have no reader of ours.

Source: sysctl(3) of macOS, hw.* and machdep.cpu.*; py-cpuinfo's README, "Fields".
"""

from typing import Any

from mlbackends.base.quantities import one_line, size_in_bytes, whole_number
from mlbackends.base.tables import table
from mlbackends.host.cpu.features import canonical, features_of_macos
from mlbackends.host.host import Host
from mlbackends.host.system.kernel import control_number, system_controls
from mlbackends.model.records import FactValue, nonempty

Facts = dict[str, FactValue]

#: The caches that py-cpuinfo reports, with their level and type.
_CACHES = (
    ("l1_data_cache_size", 1, "data"),
    ("l1_instruction_cache_size", 1, "instruction"),
    ("l2_cache_size", 2, "unified"),
    ("l3_cache_size", 3, "unified"),
)


def of_macos(host: Host) -> tuple[frozenset[str], Facts]:
    """Return the features and facts that `sysctl -a` has, with those of py-cpuinfo for what it lacks."""
    controls = system_controls(host)
    words, facts = features_of_macos(controls), macos_facts(controls)
    if host.is_live and (not words or "model_name" not in facts):
        other_words, other_facts = of_py_cpuinfo(host)
        words, facts = words or other_words, {**other_facts, **facts}
    return words, facts


def of_py_cpuinfo(host: Host) -> tuple[frozenset[str], Facts]:
    """Return the features that py-cpuinfo reports, and identity, threads, base frequency and caches."""
    report: dict[str, Any] = host.system("py_cpuinfo") or {}
    name, vendor = one_line(str(report.get("brand_raw", ""))), str(report.get("vendor_id_raw", ""))
    hertz, *_ = report.get("hz_advertised") or (0,)
    numbers = {"threads": "count", "family": "family", "model": "model", "stepping": "stepping"}
    sizes = ((level, kind, size_in_bytes(str(report.get(field, "")))) for field, level, kind in _CACHES)
    facts = {
        "vendor_id": vendor,
        "vendor": table("host/cpu/names")["x86_vendors"].get(vendor, vendor),
        "model_name": name,
        "model_name_source": "py-cpuinfo" if name else "",
        **{
            fact: whole_number(str(report.get(field, "")), highest=1 << 20) for fact, field in numbers.items()
        },
        "base_hertz": whole_number(str(hertz), 1, 20 * 10**9),
        "caches": [{"level": level, "type": kind, "size_bytes": size} for level, kind, size in sizes if size],
    }
    facts["threads"] = facts["threads"] or host.system("cpu_count")
    return canonical(report.get("flags", [])), nonempty(facts)


def macos_facts(controls: dict[str, str]) -> Facts:
    """Return identity, counts, kinds of core, caches and frequency from `sysctl -a`."""
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
        fact: control_number(controls, *names) for fact, names in table("host/cpu/macos")["numbers"].items()
    }
    if facts["microcode"]:
        facts["microcode"] = hex(facts["microcode"])
    if facts["threads"] and facts["cores"]:
        facts["threads_per_core"] = -(-facts["threads"] // facts["cores"])
    # The prefix of each perflevel's settings and its kind of core, the fastest first.
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
    caches = []
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
            caches.append(cache)
    return caches

"""The microarchitecture of a CPU, and archspec's name of it, by which Spack and EasyBuild choose builds.

Source: Linux, arch/x86/include/asm/intel-family.h and arch/x86/kernel/cpu/amd.c; archspec's
microarchitectures.json, in which what is newer than its newest has the name of that.
"""

import re
from typing import Any

from mlbackends.base.tables import table

_POWER_OF_ARCHSPEC = {"ppc64": (7, 8, 9, 10), "ppc64le": (8, 9, 10)}


def microarchitecture(architecture: str, facts: dict[str, Any]) -> dict[str, str]:
    """Return `microarchitecture` and `archspec` for the facts of a CPU's identity; {} where it has none.

    Cores of several kinds have one name on x86, and on Arm one each: "Cortex-X925 + Cortex-A725".
    """
    names = table("host/cpu/microarchitectures")
    model_name = str(facts.get("model_name", ""))
    name = archspec = ""
    if "family" in facts:
        of_model = (each for each in names["x86"] if _is_model(each, facts))
        found: dict[str, str] = next(of_model, {})
        name, archspec = found.get("name", ""), found.get("archspec", "")
    elif generation := facts.get("power_generation"):
        name = f"POWER{generation}"
        if generation in _POWER_OF_ARCHSPEC.get(architecture, ()):
            archspec = f"power{generation}{'le' if architecture == 'ppc64le' else ''}"
    elif facts.get("model_name_source") == "part-number":
        name = model_name.removeprefix(f"{facts.get('vendor', '')} ")
    elif found_name := re.match(r"Apple (M\d+)|(Spacemit\(R\) X\d+$|[a-z]+,[\w-]+$)", model_name):
        name = found_name[1] or found_name[2]  # macOS; RISC-V, by the maker or by the device tree
    if not archspec:
        chip = re.search(r"\((M\d)\b", name)  # "Firestorm (M1 Pro)"
        archspec = names["archspec"].get(chip[1] if chip else name, "")
    facts = {"microarchitecture": name, "archspec": archspec}
    return {fact: value for fact, value in facts.items() if value}


def _is_model(entry: dict[str, Any], facts: dict[str, Any]) -> bool:
    if (entry["vendor"], entry["family"]) != (facts.get("vendor_id"), facts["family"]):
        return False
    lists = (entry["models"], "model"), (entry.get("steppings", ""), "stepping")
    return all(not ranges or _has(ranges, facts.get(fact)) for ranges, fact in lists)


def _has(ranges: str, number: int | None) -> bool:
    """Tell whether ranges such as "0x10-0x1f 0x61" have a number."""
    for each in ranges.split():
        low, _, high = each.partition("-")
        if number is not None and int(low, 0) <= number <= int(high or low, 0):
            return True
    return False

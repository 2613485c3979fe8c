"""CUDA_VISIBLE_DEVICES and similar variables: what they show, what they hide, and their errors.

CUDA reads the list up to the first entry that is not a device and silently ignores the rest; a repeated entry
hides everything. A number is read up to the first other character: "1x" is 1.

Source: CUDA C++ Programming Guide, CUDA environment variables; NVIDIA Container Toolkit.
"""

from mlbackends.base.patterns import pattern
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host

VARIABLE = "CUDA_VISIBLE_DEVICES"
_ENTRY = pattern(r"\s*(?:\+?(\d+)|((?:GPU|MIG)-[0-9A-Za-z/-]+))")


def visible(value: str) -> tuple[tuple[str, ...], str]:
    """Return the entries of a list that count, and the problem with the others ("" for none)."""
    names: list[str] = []
    if not value.strip():
        return (), ""
    for part in value.split(","):
        match = _ENTRY.match(part)
        if match is None:
            message = f'"{part.strip()}" is not a GPU; it and what follows it are ignored'
            return tuple(names), "" if part.strip() == "-1" else message
        entry = str(int(match[1])) if match[1] else match[2]
        if entry in names:
            return (), f"{entry} is listed twice, which hides every GPU"
        names.append(entry)
    return tuple(names), ""


def environment(host: Host) -> dict[str, str]:
    """Return the variables that decide which GPUs a program sees, those that are set."""
    names = table("host/variables")["cuda"]
    return {name: host.environment[name] for name in names if name in host.environment}


def visibility_warnings(host: Host, count: int, uuids: tuple[str, ...] = ()) -> tuple[Reason, ...]:
    """Return warnings about the variables.

    count: of the GPUs, 0 if not known. uuids: of all of them, () if one is not known.
    """
    warnings = []
    value = environment(host).get(VARIABLE)
    if value is not None:
        entries, problem = visible(value)
        if not entries:
            message = f'{VARIABLE} is "{value}": CUDA programs see no GPU'
            warnings.append(Reason("hidden-by-variable", message, f"unset {VARIABLE}"))
        problems = [problem] if problem else []
        for entry in entries:
            noun = ""
            if entry.isdecimal() and int(entry) >= count > 0:
                noun = f"there is no GPU {entry} (the last one is {count - 1})"
            # A MIG instance has another UUID, and the beginning of one is enough.
            elif entry.startswith("GPU-") and uuids and not any(u.startswith(entry) for u in uuids):
                noun = f"no GPU here has the UUID {entry}"
            if noun:
                problems.append(f"{noun}; it and what follows it are ignored")
                break
        warnings += [
            Reason("override-invalid", f'{VARIABLE} is "{value}": {problem}') for problem in problems
        ]
    order = environment(host).get("CUDA_DEVICE_ORDER", "")
    if order and order not in ("FASTEST_FIRST", "PCI_BUS_ID"):
        message = f'CUDA_DEVICE_ORDER is "{order}"; only FASTEST_FIRST and PCI_BUS_ID are known'
        warnings.append(Reason("override-invalid", message))
    return tuple(warnings)


def lacks_capability(host: Host, capability: str) -> str:
    """Return a hint if a container was started without a part of the driver; "" otherwise.

    capability: "utility" for NVML, "compute" for CUDA.
    """
    capabilities = environment(host).get("NVIDIA_DRIVER_CAPABILITIES", "")
    if not capabilities or capability in capabilities.split(",") or "all" in capabilities.split(","):
        return ""
    return f'NVIDIA_DRIVER_CAPABILITIES is "{capabilities}": start the container with {capability} in it'

"""the text of `nvidia-smi -q`, or its XML."""

import re
from collections.abc import Iterator

from mlbackends.audit.pasted._stated import Stated, mib

_TEXT = {
    "driver_release": r"Driver Version[ \t]*: (\S+)",
    "cuda_version": r"CUDA Version[ \t]*: (\S+)",
    "gpu": r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)",
    "name": r"Product Name[ \t]*: (.+)",
    "memory": r"FB Memory Usage\n[ \t]*Total[ \t]*: (\d+) (\w+)",
    "persistence": r"Persistence Mode[ \t]*: (\w+)",
    "compute_mode": r"Compute Mode[ \t]*: (\w+)",
}
_XML = {
    "driver_release": r"<driver_version>([^<]+)<",
    "cuda_version": r"<cuda_version>([^<]+)<",
    "gpu": r'<gpu id="([^"]+)"',
    "name": r"<product_name>([^<]+)<",
    "memory": r"<fb_memory_usage>\s*<total>(\d+) (\w+)<",
    "persistence": r"<persistence_mode>(\w+)<",
    "compute_mode": r"<compute_mode>(\w+)<",
}


def matches(text: str) -> bool:
    """Return whether the text has the heading of either."""
    return bool(re.search("=+NVSMI LOG=+|<nvidia_smi_log>", text))


def read(text: str) -> Iterator[Stated]:
    """Read the head, and the part of each GPU; a part that is cut off has what comes before the cut."""
    patterns = _XML if "<nvidia_smi_log>" in text else _TEXT
    for fact in ("driver_release", "cuda_version"):
        if match := re.search(patterns[fact], text):
            yield Stated(f"nvidia.{fact}", match[1], match.start())
    starts = [*re.finditer(patterns["gpu"], text, re.MULTILINE)]
    ends = [*(match.start() for match in starts[1:]), len(text)]
    for index, (start, end) in enumerate(zip(starts, ends, strict=False)):
        gpu = f"nvidia.devices.{index}"
        yield Stated(f"{gpu}.pci_address", start[1][-12:].lower(), start.start())
        found = {name: re.compile(patterns[name]).search(text, start.start(), end) for name in patterns}
        if name := found["name"]:
            yield Stated(f"{gpu}.name", name[1].strip(), name.start())
        if memory := found["memory"]:
            yield Stated(f"{gpu}.memory_bytes", mib(memory[1], memory[2]), memory.start())
        if persistence := found["persistence"]:
            yield Stated(f"{gpu}.persistence_mode", persistence[1] == "Enabled", persistence.start())
        if mode := found["compute_mode"]:
            yield Stated(f"{gpu}.compute_mode", mode[1].lower(), mode.start())

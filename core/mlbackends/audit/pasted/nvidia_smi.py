"""the table of `nvidia-smi`."""

import re
from collections.abc import Iterator

from mlbackends.audit.pasted._stated import Stated, mib

_HEAD = re.compile(
    r"NVIDIA-SMI[ \t]+(\d[\d.]*)(?:.*?(?:Driver|KMD) Version:\s*([\d.]+))?"
    r"(?:.*?CUDA (?:UMD )?Version:\s*([\d.]+))?"
)
_GPU = re.compile(
    r"^\s*\|\s+(\d{1,3})\s+(\S.*?)(?:\s+(On|Off|N/A|WDDM|TCC|MCDM|Default))?\s*\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)",
    re.MULTILINE,
)
_MEMORY = re.compile(r"/\s*(\d+)MiB")


def matches(text: str) -> bool:
    """Return whether the text has the head of the table, or the row of a GPU."""
    return bool(re.search(r"NVIDIA-SMI[ \t]+\d{3}\.\d+", text) or _GPU.search(text))


def read(text: str) -> Iterator[Stated]:
    """Read the head and the rows of the GPUs."""
    if head := _HEAD.search(text):
        yield Stated("nvidia.driver_release", head[2] or head[1], head.start())
        if head[3]:
            yield Stated("nvidia.cuda_version", head[3], head.start())
    for match in _GPU.finditer(text):
        gpu, at = f"nvidia.devices.{match[1]}", match.start(1)
        name = match[2].removesuffix("...").strip()
        if name not in ("NVIDIA GeForce", "NVIDIA", "GeForce"):
            yield Stated(f"{gpu}.name", name, at)
        yield Stated(f"{gpu}.pci_address", match[4][-12:].lower(), at)
        if match[3] in ("On", "Off"):
            yield Stated(f"{gpu}.persistence_mode", match[3] == "On", at)
        elif match[3] in ("WDDM", "TCC", "MCDM"):
            yield Stated("host.platform", "win32", at)
        end = text.find("\n", match.end())
        if memory := _MEMORY.search(text, end, end + 200):
            yield Stated(f"{gpu}.memory_bytes", mib(memory[1], "M"), at)

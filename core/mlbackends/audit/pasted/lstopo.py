"""the XML of `lstopo`."""

import re
from collections.abc import Iterator

from mlbackends.audit.pasted._stated import Stated

_INFOS = {
    "cpu.model_name": "CPUModel",
    "cpu.architecture": "Architecture",
    "host.kernel_release": "OSRelease",
    "host.os_name": "OSName",
}
_GPU = re.compile(r'<object type="OSDev"[^>]*name="(cuda|rsmi)(\d+)"')
_GPU_NAME = re.compile(r'<info name="GPUModel" value="([^"]+)"')
_MEMORY = re.compile(r'<info name="CUDAGlobalMemorySize" value="(\d+)"')


def matches(text: str) -> bool:
    """Return whether the text has its head."""
    return bool(re.search(r"<!DOCTYPE topology|<topology version=|<topology>", text))


def read(text: str) -> Iterator[Stated]:
    """Read the processor, the number of its parts, and the GPUs with a name."""
    for fact, info in _INFOS.items():
        if match := re.search(rf'<info name="{info}" value="([^"]+)"', text):
            yield Stated(fact, match[1], match.start())
            if info == "OSName" and match[1] == "Linux":
                yield Stated("host.platform", "linux", match.start())
    for fact, kind in (("cpu.sockets", "Package"), ("cpu.cores", "Core"), ("cpu.threads", "PU")):
        if parts := [*re.finditer(rf'<object type="{kind}"', text)]:
            yield Stated(fact, len(parts), parts[0].start())
    for match in _GPU.finditer(text):
        probe = "nvidia" if match[1] == "cuda" else "rocm"
        end = text.find("<object", match.end())
        end = end if end > 0 else len(text)
        if name := _GPU_NAME.search(text, match.end(), end):
            yield Stated(f"{probe}.devices.{match[2]}.name", name[1], name.start())
        if memory := _MEMORY.search(text, match.end(), end):
            yield Stated(f"{probe}.devices.{match[2]}.memory_bytes", int(memory[1]) << 10, memory.start())

"""a log of Ollama's server."""

import re
from collections.abc import Iterator

from mlbackends.audit.pasted._stated import Stated, mib

_SIGN = re.compile(
    r'source=\w+\.go:\d+ msg="(?:Listening on|looking for compatible GPUs|inference compute|total blobs)'
)
_DEVICE = re.compile(
    r'msg="inference compute"[^\n]*?library=(\w+)[^\n]*?compute=(\S+)'
    r'[^\n]*?(?:name|description)=("[^"]*"|\S+)'
    r'(?:[^\n]*?total="([\d.]+) (\w+)")?'
)
_CONFIGURATION = re.compile(r'server config" env="map\[([^\n]*)\]"|server config env="map\[([^\n]*)\]"')
_SETTING = re.compile(r"\b([A-Z][A-Z0-9_]{3,50}):(\S+)")
_VERSION = re.compile(r"\(version (\d[\w.-]*)\)")
_UNSUPPORTED = re.compile(r"amdgpu is not supported[^\n]*?\bgpu(?:_type)?=(gfx\w+)")


def matches(text: str) -> bool:
    """Return whether the text has one of the lines of its start."""
    return bool(_SIGN.search(text))


def read(text: str) -> Iterator[Stated]:
    """Read the devices that it computes on, and its variables."""
    index = 0
    for match in _DEVICE.finditer(text):
        library, compute, name, amount, unit = match.groups()
        probe = {"cuda": "nvidia", "rocm": "rocm"}.get(library.lower())
        if probe is None:
            continue
        gpu = f"{probe}.devices.{index}"
        if re.fullmatch(r"\d+\.\d|gfx\w+", compute):
            yield Stated(f"{gpu}.capability", compute, match.start())
        yield Stated(f"{gpu}.name", name.strip('"'), match.start())
        if amount:
            yield Stated(f"{gpu}.memory_bytes", mib(amount, unit), match.start())
        index += 1
    if not index and (card := _UNSUPPORTED.search(text)):
        yield Stated("rocm.devices.0.capability", card[1], card.start())
    if configuration := _CONFIGURATION.search(text):
        for setting in _SETTING.finditer(configuration[1] or configuration[2]):
            if not setting[2].startswith(("map", "[")):
                yield Stated(f"environment.variables.{setting[1]}", setting[2], configuration.start())

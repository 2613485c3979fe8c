"""the output of `rocminfo`, or the JSON of `rocm-smi`."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise

from mlbackends.audit.pasted._stated import Stated

_AGENT = re.compile(r"^Agent \d+[ \t]*$", re.MULTILINE)
_NAME = re.compile(r"^[ \t]*Name:[ \t]+(gfx\w+)", re.MULTILINE)
_MARKETING = re.compile(r"^[ \t]*Marketing Name:[ \t]+(\S.*)$", re.MULTILINE)
_JSON = re.compile(r'\{\s*"(?:card\d+|system)"\s*:')
_DRIVER = re.compile(r"ROCk module version (\S+)")


def matches(text: str) -> bool:
    """Return whether the text has the heading of agents, or an object of cards."""
    return "HSA System Attributes" in text or "HSA Agents" in text or bool(_JSON.search(text))


def read(text: str) -> Iterator[Stated]:
    """Read the name and target of each GPU."""
    index = 0
    starts = [match.start() for match in _AGENT.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        target = _NAME.search(text, start, end)
        if target is None:
            continue
        yield Stated(f"rocm.devices.{index}.capability", target[1], target.start())
        if name := _MARKETING.search(text, start, end):
            yield Stated(f"rocm.devices.{index}.name", name[1].strip(), name.start())
        index += 1
    if match := _DRIVER.search(text):
        yield Stated("rocm.driver_version", match[1], match.start())
    if (start_of := _JSON.search(text)) is None:
        return
    try:
        cards, _ = json.JSONDecoder().raw_decode(text, start_of.start())
    except (ValueError, RecursionError):  # it is cut off
        return
    for name, card in cards.items():
        if not isinstance(card, dict):
            continue
        values = {str(key).lower(): str(value) for key, value in card.items()}
        if name.removeprefix("card").isdecimal():
            gpu, at = f"rocm.devices.{name.removeprefix('card')}", text.find(f'"{name}"', start_of.start())
            for key, field in (("card series", "name"), ("gfx version", "capability")):
                if value := values.get(key):
                    yield Stated(f"{gpu}.{field}", value, at)
        elif version := values.get("driver version"):
            yield Stated("rocm.driver_version", version, start_of.start())

"""What the renderers say of probes: label, group, and the facts that show at a glance."""

import re
from types import ModuleType
from typing import Any

from mlbackends.model import registry
from mlbackends.model.errors import UnknownName
from mlbackends.model.records import ProbeReport

GROUPS = {
    "machine": "Machine",
    "accelerator": "Accelerators",
    "library": "Libraries",
    "framework": "Packages",
}


def label(name: str) -> str:
    """Return what a probe's thing is called: the first words of its docstring, "cuDNN" for cudnn."""
    return _doc(name).partition(":")[0]


def meaning(name: str) -> str:
    """Return what a probe's thing is, in a phrase: "NVIDIA's deep-learning primitives"."""
    return _doc(name).partition(":")[2].strip().rstrip(".")


def _doc(name: str) -> str:
    probe = _probe(name)
    return ((probe.__doc__ if probe else "") or name).splitlines()[0]


def _probe(name: str) -> ModuleType | None:
    """Return a probe; None for one that a saved report has and this installation has not."""
    try:
        return registry.load("mlbackends_probes", name)
    except UnknownName:
        return None


def group(name: str) -> str:
    """Return the group that a probe declares, "library" where it declares none of GROUPS."""
    group = getattr(_probe(name), "GROUP", "library")
    return group if group in GROUPS else "library"


def glance(name: str, probe: ProbeReport) -> str:
    """Return the facts that the probe's SUMMARY names, as one line; "" where it names none.

    An item is a fact's name, or a template such as "{sockets} sockets" which is left out where a fact is
    not there, or has the value that the probe's USUAL says goes without saying.
    """
    module = _probe(name)
    usual = getattr(module, "USUAL", {})
    values = {
        fact: amount(fact, value)
        for fact, value in probe.facts.items()
        if fact not in usual or usual[fact] != value
    }
    shown = []
    for item in getattr(module, "SUMMARY", ()):
        template = item if "{" in item else f"{{{item}}}"
        try:
            text = template.format(**{"version": probe.version, **values})
        except KeyError:
            continue
        if text := " ".join(text.split()):
            shown.append(_one(text))
    return " · ".join(shown)


def _one(text: str) -> str:
    """Return "1 core" for "1 cores", "1 CPU usable" for "1 CPUs usable"; other text as it is."""
    return re.sub(r"^1 ([A-Za-z]+)s(?=[ ,]|$)", r"1 \1", text)


_MOST_BITS = 1000
"""A whole number of more bits is no fraction's like; only a report that is not ours has one."""


def amount(name: str, value: Any) -> str:
    """Return a fact's value for people: bytes and hertz by the unit in the fact's name, lists joined."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return quantity(name, value)
    if isinstance(value, list):
        return ", ".join(amount(name, each) for each in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {amount(str(key), each)}" for key, each in value.items()) or "none"
    return str(value)


def quantity(name: str, value: float) -> str:
    """Return a number with the unit that its fact's name ends in."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"{'-' if value < 0 else ''}2^{value.bit_length() - 1} or beyond"
    if name.endswith("_bytes"):
        return binary_size(value)
    if name.endswith("_hertz") and value >= 1000:
        for scale, unit in ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz")):
            if value >= scale:
                return f"{value / scale:.4g} {unit}"
    if name.endswith("_seconds"):
        return f"{value:.4g} s"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def binary_size(value: float) -> str:
    """Return bytes as KiB, MiB, GiB or TiB with at most four digits."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{value / 1024**power:.4g} {unit}"
    return f"{value:g} B"

"""A policy made from a machine: what `backends audit --init` prints.

Kinds and counts are exact, versions at least what is there, memory at most 5 % less. Nothing that names
the machine or its user is in it: only the facts that are listed here are.
"""

import json
from collections.abc import Iterator
from typing import Any

from mlbackends.audit.policy.assertions import read_version
from mlbackends.model import registry
from mlbackends.model.dotted import is_certain
from mlbackends.model.policy import VERSION
from mlbackends.model.records import Device, Presence, ProbeReport, Report
from mlbackends.model.registry import facts_of

_EXACT = (
    "host.platform",
    "host.os_id",
    "host.libc",
    "host.container",
    "cpu.architecture",
    "cpu.vendor",
    "cpu.sockets",
    "cpu.cores",
    "cpu.threads",
    "nvidia.pci_gpu_count",
    "nvidia.kernel_module",
    "torch.built_for",
)
_VERSIONS = ("host.libc_version", "host.kernel_release")
_LADDERS = ("cpu.x86_64_level", "cpu.capability")
_MEMORY = ("memory.total_bytes", "host.shared_memory_bytes", "limits.effective_memory_bytes")
_AT_LEAST = ("limits.effective_cpus",)
_GROUPS = ("accelerator", "library", "framework")
_MEBIBYTE = 1 << 20
_TOLERANCE = 20
"""One part in so many that memory may be less: firmware and kernels take a little more or less of it."""

_HEAD = """\
# Written by `backends audit --init` from a machine. Take out what does not matter, and tighten what does.
# `backends audit --policy FILE` holds a machine to it; backends-policy(7) has the whole language.
schema = {version}
name = {name}

# Known hazards can be looked for too: those of this severity or worse are then errors.
# hazards = {{ fail_on = "error" }}
"""


def written(report: Report) -> str:
    """Return a policy that the machine of a report fits."""
    name = _toml(f"A machine as of {report.created[:10]}")
    parts = [_HEAD.format(version=VERSION, name=name)]
    parts += _facts(report)
    for probe in registry.names("mlbackends_probes"):
        found = report.probes.get(probe)
        if found is not None and found.presence is not None and is_certain(found):
            parts += _probe(probe, found)
    return "\n".join(parts)


def _facts(report: Report) -> Iterator[str]:
    """Yield the rules about the machine itself."""
    for name in (*_EXACT, *_LADDERS, *_VERSIONS, *_AT_LEAST, *_MEMORY):
        probe, _, head = name.partition(".")
        fact = facts_of(probe).get(head)
        value: Any = report.probes[probe].facts.get(head) if probe in report.probes else None
        if fact is None or type(value) is not fact.kind or value == "":
            continue
        assertion: tuple[str, Any] | None
        if name in _VERSIONS:
            assertion = _version(value)
        elif name in _LADDERS:
            assertion = ("at_least" if value in fact.order else "equals", value)
        elif name in _MEMORY:
            assertion = ("min", _floor(value)) if value > 0 else None
        else:
            assertion = ("min" if name in _AT_LEAST else "equals", value)
        if assertion:
            about = "" if name in _VERSIONS else fact.doc
            yield _rule(
                name.replace(".", "-").replace("_", "-"), name, assertion[0], assertion[1], about
            )


def _probe(name: str, probe: ProbeReport) -> Iterator[str]:
    """Yield the rules about one thing that was found, and about its devices."""
    if probe.presence in (None, Presence.ABSENT):
        return
    title = name.replace("_", "-")
    if _group(name) in _GROUPS:
        assertion = _version(probe.version)
        if assertion:
            yield _rule(f"{title}-version", name, *assertion)
        if not assertion or probe.presence is not Presence.FOUND:
            yield _rule(f"{title}-presence", name, "at_least", str(probe.presence))
    elif name == "python" and (assertion := _version(probe.version)):
        yield _rule("python-version", name, *assertion)
    for kind in dict.fromkeys(device.kind for device in probe.devices):
        if kind.isascii() and kind.isidentifier():
            alike = [device for device in probe.devices if device.kind == kind]
            yield from _devices(name, title if kind == name else f"{title}-{kind}", kind, alike)


def _devices(probe: str, title: str, kind: str, devices: list[Device]) -> Iterator[str]:
    selected = f"{probe}.devices[kind == {kind}]"
    yield _rule(f"{title}-devices", selected, "count", len(devices))
    for field in ("name", "capability"):
        values = {getattr(device, field) for device in devices}
        if len(values) == 1 and values != {""}:
            yield _rule(f"{title}-{field}", f"{selected}.{field}", "equals", values.pop())
    sizes = [device.memory_bytes for device in devices]
    if all(size is not None for size in sizes):
        least = min(size for size in sizes if size is not None)
        yield _rule(f"{title}-memory", f"{selected}.memory_bytes", "min", _floor(least))


def _rule(title: str, fact: str, key: str, value: Any, about: str = "") -> str:
    comment = f"# {about}\n" if about else ""
    return f"{comment}[[rule]]\nid = {_toml(title)}\nfact = {_toml(fact)}\n{key} = {_toml(value)}\n"


def _toml(value: Any) -> str:
    """Return a value as TOML has it; its texts are JSON's, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _version(text: str) -> tuple[str, str] | None:
    """Return the assertion of a version that is not older; None where the text is none."""
    read = read_version(text)
    return None if read is None else ("version", f">={read.public}")


def _floor(size: int) -> int | str:
    """Return a size less 5 %, as whole mebibytes where it has some."""
    less = size - size // _TOLERANCE
    return f"{less // _MEBIBYTE}MiB" if less >= _MEBIBYTE else less


def _group(probe: str) -> str:
    return getattr(registry.load("mlbackends_probes", probe), "GROUP", "library")

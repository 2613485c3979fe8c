"""A policy made from a machine: what `backends audit --init` prints.

Kinds and counts are exact, versions at least those found, memory at most 5 % less. Only the facts that
draft.json lists are in it, so that nothing names the machine or its user.
"""

import json
from collections.abc import Iterator
from typing import Any

from mlbackends.audit.policy.assertions import read_version
from mlbackends.audit.policy.language import VERSION
from mlbackends.base import registry
from mlbackends.base.tables import table
from mlbackends.host.declared import facts_of
from mlbackends.model.audit import Problem
from mlbackends.model.records import Presence, ProbeReport, Report
from mlbackends.survey.dotted import is_certain

_GROUPS = ("accelerator", "library", "framework")
_MEBIBYTE = 1 << 20
#: Memory may be less by one part in this many: firmware and kernels reserve a little more or less of it.
_TOLERANCE = 20

_HEAD = """\
# Written by `backends audit --init` from a machine. Take out what does not matter, and tighten what does.
# `backends audit --policy FILE` checks a machine against it; backends-policy(7) describes the whole language.
schema = {version}
name = {name}

# Known hazards can be looked for too: those of this severity or worse are then errors.
# hazards = {{ fail_on = "error" }}
"""


def written(report: Report) -> str:
    """Return a policy that the machine of a report passes."""
    name = _toml(f"A machine as of {report.created[:10]}")
    parts = [_HEAD.format(version=VERSION, name=name)]
    for key, names in table("audit/policy/draft").items():
        for name in names:
            probe, _, head = name.partition(".")
            fact = facts_of(probe).get(head)
            facts = report.probes[probe].facts if probe in report.probes else {}
            value: Any = facts.get(head)
            if fact is None or type(value) is not fact.kind or value == "":
                continue
            title = name.replace(".", "-").replace("_", "-")
            if key == "version":
                if version := _version(value):
                    parts.append(_rule(title, name, key, version))
            elif key == "memory":
                if value > 0:
                    parts.append(_rule(title, name, "min", _floor(value), fact.doc))
            else:
                verb = "equals" if key == "at_least" and value not in fact.order else key
                parts.append(_rule(title, name, verb, value, fact.doc))
    for probe in registry.names(registry.PROBES):
        found = report.probes.get(probe)
        if found is not None and found.presence is not None and is_certain(found):
            parts += _probe_rules(probe, found)
    return "\n".join(parts)


def _probe_rules(name: str, probe: ProbeReport) -> Iterator[str]:
    """Yield the rules about one thing that was found, and about its devices."""
    if probe.presence is Presence.ABSENT:
        return
    title = name.replace("_", "-")
    group = getattr(registry.load(registry.PROBES, name), "GROUP", "library")
    problem = Problem.USER if group == "framework" or name == "python" else Problem.NODE
    version = _version(probe.version)
    if version and (group in _GROUPS or name == "python"):
        yield _rule(f"{title}-version", name, "version", version, problem=problem)
    if group in _GROUPS and (not version or probe.presence is not Presence.FOUND):
        yield _rule(f"{title}-presence", name, "at_least", str(probe.presence), problem=problem)
    for kind in dict.fromkeys(device.kind for device in probe.devices):
        if kind.isascii() and kind.isidentifier():
            alike = [device for device in probe.devices if device.kind == kind]
            prefix = title if kind == name else f"{title}-{kind}"
            selected = f"{name}.devices[kind == {alike[0].kind}]"
            yield _rule(f"{prefix}-devices", selected, "count", len(alike))
            for field in ("name", "capability"):
                values = {getattr(device, field) for device in alike}
                if len(values) == 1 and values != {""}:
                    yield _rule(f"{prefix}-{field}", f"{selected}.{field}", "equals", values.pop())
            sizes = [device.memory_bytes for device in alike if device.memory_bytes is not None]
            if len(sizes) == len(alike):
                yield _rule(f"{prefix}-memory", f"{selected}.memory_bytes", "min", _floor(min(sizes)))


def _rule(
    title: str, fact: str, key: str, value: Any, about: str = "", problem: Problem = Problem.NODE
) -> str:
    comment = f"# {about}\n" if about else ""
    rule = f"[[rule]]\nid = {_toml(title)}\nfact = {_toml(fact)}\n{key} = {_toml(value)}\n"
    return comment + rule + (f"problem = {_toml(problem)}\n" if problem is Problem.USER else "")


def _toml(value: Any) -> str:
    """Return a value as TOML has it; its texts are JSON's, but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _version(text: str) -> str:
    """Return the specifier of a version that is not older; "" where the text is none."""
    version = read_version(text)
    is_plain = text.replace(".", "").isdecimal()  # 580.95.05 is 580.95.5 in PEP 440
    return f">={text if is_plain else version.public}" if version else ""


def _floor(size: int) -> int | str:
    """Return a size less 5 %, as whole mebibytes where it has some."""
    less = size - size // _TOLERANCE
    return f"{less // _MEBIBYTE}MiB" if less >= _MEBIBYTE else less

"""Layouts of machines from public sources: the probes find what their owners, makers or tools say.

tests/layouts/README.md has the format. What is expected comes from the source, never from our output.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.model.records import Presence
from mlbackends_probes import cpu, host, limits, memory

if TYPE_CHECKING:
    from types import ModuleType

LAYOUTS = Path(__file__).resolve().parents[1] / "layouts"
NAMES = sorted(path.stem for path in LAYOUTS.glob("*.toml"))
PROBES = {"cpu": cpu, "host": host, "limits": limits, "memory": memory}


@cache
def expander() -> ModuleType:
    """Import tests/layouts/layout.py."""
    specification = spec_from_file_location("layout", LAYOUTS / "layout.py")
    assert specification is not None and specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def size(number: int) -> str:
    """Write a size as lscpu does, without rounding: 32K, 1280K, 36M."""
    shift, unit = next((s, u) for s, u in ((30, "G"), (20, "M"), (10, "K")) if not number % (1 << s))
    return f"{number >> shift}{unit}"


def cache_lines(facts: dict[str, Any]) -> list[str]:
    """Return "L1d 8 x 32K" of each kind of cache, with the kind of core that alone has it."""
    counts: dict[tuple[str, str], Any] = {}
    for fact in facts.get("caches", ()):
        name = f"L{fact['level']}{'' if fact['type'] == 'unified' else fact['type'][0]}"
        key = name, " ".join((size(fact["size_bytes"]), *filter(None, [fact.get("kind")])))
        # Those that more CPUs share are apart; here they count together, as in lscpu.
        counts[key] = counts.get(key, 0) + fact["instances"] if "instances" in fact else "?"
    return sorted(f"{name} {count} x {what}" for (name, what), count in counts.items())


def kind_lines(facts: dict[str, Any]) -> list[str]:
    """Return "Cortex-A55 0-3" of each kind of core, with its highest frequency where it is known."""
    return [
        f"{kind['name']} {kind['cpus']}"
        + (f" {kind['max_hertz'] // 10**6} MHz" if "max_hertz" in kind else "")
        for kind in facts.get("kinds", ())
    ]


def node_lines(facts: dict[str, Any]) -> list[str]:
    """Return "0: 0-15" of each NUMA node, with its kind, what CPUs are near, and its cache."""
    lines = []
    for node in facts.get("numa_nodes", ()):
        words = [f"{node['node']}: {node['cpus'] or '-'}"]
        words += [f"{name} {node[name]}" for name in ("kind", "near_cpus") if name in node]
        if cache := node.get("memory_side_cache_bytes"):
            words.append(f"side cache {size(cache)}")
        lines.append(" ".join(words))
    return lines


LINES = {"caches": cache_lines, "kinds": kind_lines, "nodes": node_lines}


@pytest.mark.parametrize("name", NAMES)
def test_the_probes_find_what_the_source_says(name: str, tmp_path: Path) -> None:
    layout = expander().read(LAYOUTS / f"{name}.toml")
    machine = expander().machine(layout, tmp_path)
    findings = {probe: module.find(machine) for probe, module in PROBES.items()}
    facts = findings["cpu"].facts

    expected = layout["expected"]
    found = {
        key: LINES[key](facts)
        if key in LINES
        else findings[key.partition(".")[0]].facts.get(key.partition(".")[2])
        for key in expected
        if key != "absent"
    }
    present = [
        probe
        for probe in expected.get("absent", ())
        if probe.partition(".")[2] in findings[probe.partition(".")[0]].facts
    ]

    if "caches" in expected:
        expected["caches"].sort()
    assert found == {key: value for key, value in expected.items() if key != "absent"}
    assert present == []
    assert {finding.presence for finding in findings.values()} == {Presence.FOUND}
    assert contradictions(facts) == []


def contradictions(facts: dict[str, Any]) -> list[str]:
    """Return what of the facts of a CPU cannot be true at once."""
    threads, cores = facts["threads"], facts.get("cores", facts["threads"])
    found = []
    if not facts.get("sockets", 1) <= facts.get("dies", cores) <= cores <= threads:
        found.append("more of an outer level than of an inner one")
    if cores % facts.get("dies", facts.get("sockets", 1)) and "uneven" not in facts:
        found.append("cores do not divide into sockets or dies")
    covered = [fact.get("instances", 0) * fact.get("shared_by_cpus", 0) for fact in facts.get("caches", ())]
    if max(covered, default=0) > threads and not facts["offline_cpus"]:
        found.append("a cache is shared by more CPUs than there are")
    if facts.get("kinds") and sum(kind["threads"] for kind in facts["kinds"]) != threads:
        found.append("the kinds have not all CPUs")
    return found


def test_the_layouts_are_of_many_kinds_and_say_where_they_are_from() -> None:
    layouts = [expander().read(LAYOUTS / f"{name}.toml") for name in NAMES]
    machines = Counter(layout["machine"] for layout in layouts)

    assert len(layouts) >= 45
    assert machines.keys() >= {
        "x86_64",
        "aarch64",
        "armv7l",
        "ppc64",
        "ppc64le",
        "s390x",
        "riscv64",
    }
    assert all(layout["source"].startswith("https://") and layout["about"] for layout in layouts)
    assert all(len(layout["expected"]) >= 3 for layout in layouts)

"""Expand a layout, one TOML file, into a machine in an archive.

README.md has the fields. A group of CPUs is a list as the kernel writes it ("0-3,8", "0-15:1/4");
`RANGE/SIZE+OFFSET` is one group for each SIZE CPUs of the range, with the CPUs that are OFFSET further:
"0-3/1+4" is 0,4 1,5 2,6 3,7.
"""

from __future__ import annotations

import json
import re
import tomllib
from posixpath import dirname, relpath
from typing import TYPE_CHECKING, Any

from mlbackends.base.quantities import format_cpu_list, parse_cpu_list, size_in_bytes
from mlbackends.host.archive import Tree
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Files = dict[str, object]
Groups = list[tuple[int, ...]]

_CPU = "/sys/devices/system/cpu"
_NODE = "/sys/devices/system/node"
_TYPES = {"d": "Data", "i": "Instruction", "": "Unified"}
_LISTS: dict[str, dict[str, tuple[str, ...]]] = {
    "today": {
        "core": ("core_cpus_list", "thread_siblings_list"),
        "cluster": ("cluster_cpus_list",),
        "die": ("die_cpus_list",),
        "package": ("package_cpus_list", "core_siblings_list"),
    },
    "old": {"core": ("thread_siblings_list",), "package": ("core_siblings_list",)},
    "mask": {"core": ("thread_siblings",), "package": ("core_siblings",)},
}
_IDS = {
    "core": "core_id",
    "cluster": "cluster_id",
    "die": "die_id",
    "package": "physical_package_id",
}
_CACHE = re.compile(r"L(\d)([di]?) (\S+) (.+?)((?: [wsl]\d+)*)")
_CACHE_FILES = {"w": "ways_of_associativity", "s": "number_of_sets", "l": "coherency_line_size"}


def groups(text: str) -> Groups:
    """Return the groups of CPUs that a text lists, in its order."""
    found = []
    for item in text.split():
        cpus, _, pattern = item.partition("/")
        if not pattern or ":" in cpus:  # "0-15:1/4" is the kernel's for 0,4,8,12
            found.append(parse_cpu_list(item))
            continue
        size, *offsets = map(int, pattern.split("+"))
        listed = parse_cpu_list(cpus)
        for start in range(0, len(listed), size):
            own = listed[start : start + size]
            found.append(tuple(sorted(cpu + more for more in (0, *offsets) for cpu in own)))
    return found


def read(path: Path) -> dict[str, Any]:
    """Return a layout's fields."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def machine(layout: dict[str, Any], folder: Path) -> Host:
    """Return the machine that a layout describes, from an archive in a folder."""
    described = {"uname": {"machine": layout["machine"]}, **layout.get("host", {})}
    topology = layout.get("topology", {})
    online = parse_cpu_list(layout.get("online", ""))
    levels = {name: groups(topology[name]) for name in _IDS if name in topology}
    files: Files = {}
    if online and topology.get("lists", True):
        for name in ("online", "present", "possible"):
            files[f"{_CPU}/{name}"] = layout.get(name, layout["online"])
    for cpu in parse_cpu_list(layout.get("present", layout.get("online", ""))):
        files[f"{_CPU}/cpu{cpu}/uevent"] = ""
    files |= _topology(topology, levels, online)
    for cache in layout.get("caches", ()):
        files |= _cache(cache, levels, topology.get("style") == "mask")
    for policy in layout.get("cpufreq", ()):
        files |= _cpufreq(policy)
    for cpus, capacity in layout.get("capacity", {}).items():
        files |= {f"{_CPU}/cpu{cpu}/cpu_capacity": capacity for cpu in parse_cpu_list(cpus)}
    files |= _memory(layout)
    if cpuinfo := layout.get("cpuinfo"):
        files["/proc/cpuinfo"] = _cpuinfo(cpuinfo)
    files |= layout.get("files", {})
    tree = Tree()
    tree.put("host.json", json.dumps(described).encode())
    for path, content in files.items():
        tree.put(f"root{path}", (f"{content}".strip("\n") + "\n").encode())
    for path, target in layout.get("links", {}).items():
        tree.put(f"root{path}", relpath(target, dirname(path)) if target[0] == "/" else target)
    (folder / "layout.machine").write_bytes(tree.text())
    return Host(str(folder / "layout.machine"))


def _topology(topology: dict[str, Any], levels: dict[str, Groups], online: Sequence[int]) -> Files:
    style = topology.get("style", "today")
    files: Files = {}
    for level, of_level in levels.items():
        ids = topology.get(f"{level}_id", "").split() or [str(n) for n in range(len(of_level))]
        for number, group in enumerate(of_level):
            on = [cpu for cpu in group if cpu in online]
            text = _mask(on) if style == "mask" else format_cpu_list(on)
            for cpu in on:
                at = f"{_CPU}/cpu{cpu}/topology"
                files |= {f"{at}/{name}": text for name in _LISTS[style].get(level, ())}
                files[f"{at}/{_IDS[level]}"] = ids[number % len(ids)]
    return files


def _cache(text: str, levels: dict[str, Groups], has_maps: bool) -> Files:
    match = _CACHE.fullmatch(text)
    assert match, text
    level, kind, size, sharing, more = match.groups()
    index = {"1d": 0, "1i": 1}.get(level + kind, int(level) + (kind == "i"))
    values = {"level": level, "type": _TYPES[kind], "size": size}
    values |= {_CACHE_FILES[word[0]]: word[1:] for word in more.split()}
    files: Files = {}
    for group in levels.get(sharing) or groups(sharing):
        listed = {"shared_cpu_map": _mask(group)}
        listed |= {} if has_maps else {"shared_cpu_list": format_cpu_list(group)}
        for cpu in group:
            at = f"{_CPU}/cpu{cpu}/cache/index{index}"
            files |= {f"{at}/{name}": value for name, value in (values | listed).items()}
    return files


def _cpufreq(policy: dict[str, Any]) -> Files:
    values = {name: value for name, value in policy.items() if name not in ("cpus", "old")}
    files: Files = {}
    for group in groups(policy["cpus"]):
        folders = [f"{_CPU}/cpu{cpu}/cpufreq" for cpu in group]
        if not policy.get("old"):  # before Linux 4.3 there are no policies
            folders.append(f"{_CPU}/cpufreq/policy{group[0]}")
        for at in folders:
            files |= {f"{at}/{name}": value for name, value in values.items()}
            files[f"{at}/related_cpus"] = " ".join(map(str, group))
    return files


def _memory(layout: dict[str, Any]) -> Files:
    total, distances = 0, layout.get("distances", ())
    files: Files = {}
    for row, line in enumerate(layout.get("nodes", ())):
        number, cpus, size = line.replace(":", "", 1).split()
        kilobytes = (size_in_bytes(size) or 0) >> 10
        total += kilobytes
        at = f"{_NODE}/node{number}"
        files[f"{at}/cpulist"] = "" if cpus == "-" else cpus
        files[f"{at}/meminfo"] = f"Node {number} MemTotal: {kilobytes} kB"
        if distances:
            files[f"{at}/distance"] = distances[row]
    return files | ({"/proc/meminfo": f"MemTotal: {total} kB"} if total else {})


def _cpuinfo(paragraphs: dict[str, str]) -> str:
    of_cpu = {cpu: text.strip("\n") for cpus, text in paragraphs.items() for cpu in parse_cpu_list(cpus)}
    listed = [f"processor\t: {cpu}\n{of_cpu[cpu]}" for cpu in sorted(of_cpu)]
    before, after = (paragraphs.get(name, "") for name in ("before", "after"))
    return before + "\n" * bool(before) + "\n\n".join([*listed, after.strip("\n")])


def _mask(cpus: Sequence[int]) -> str:
    number = sum(1 << cpu for cpu in cpus)
    words = range(0, max(cpus, default=0) + 1, 32)
    return ",".join(f"{number >> shift & 0xFFFFFFFF:08x}" for shift in reversed(words))

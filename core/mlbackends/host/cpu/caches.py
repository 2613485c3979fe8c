"""A machine's CPU caches: how many there are of each, how large, and how many CPUs share one.

Source: Linux, sysfs-devices-system-cpu, cache/index*. Each instance is met once, through the first
CPU that has it; size is read of each L3, which may differ from die to die, and of the others once
for each kind of core.
"""

import re
from collections.abc import Sequence

from mlbackends.host.cpu.cpulist import parse_cpu_list
from mlbackends.host.cpu.identity import Block
from mlbackends.host.cpu.topology import CPU
from mlbackends.host.host import Host
from mlbackends.host.quantities import size_in_bytes, whole_number
from mlbackends.model.records import FactValue

Cache = dict[str, FactValue]

_TYPES = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
_LARGEST = 1 << 40
_LAST_LEVELS = 3


def caches(
    host: Host, cpus: Sequence[int], kinds: Sequence[Sequence[int]], blocks: list[Block]
) -> list[Cache]:
    """Return one record for each different cache, from the first level to the last.

    kinds: the CPUs of each kind of core, [] if all are alike. Size and count are of one instance
    and of instances on the whole machine.
    """
    found: dict[tuple[tuple[str, FactValue], ...], list[int]] = {}
    covered: dict[tuple[FactValue, FactValue], set[int]] = {}
    online = set(cpus)
    for group in kinds or [cpus]:
        indexes = _indexes(host, group[0]) if group else {}
        for name, cache in indexes.items():
            done = covered.setdefault((cache["level"], cache["type"]), set())
            for cpu in group:
                if cpu in done:
                    continue
                shared = _shared(host, cpu, name, online)
                if not shared:
                    continue
                done |= shared
                same = _with_size(host, cpu, name, cache)
                found.setdefault(tuple(same.items()), []).append(len(shared))
    listed = [
        {**dict(cache), "instances": len(sharing), "shared_by_cpus": max(sharing)}
        for cache, sharing in found.items()
    ]
    listed += _from_cpuinfo(blocks, {cache["level"] for cache in listed})
    return sorted(listed, key=_order)


def _indexes(host: Host, cpu: int) -> dict[str, Cache]:
    """Return one CPU's caches by the name of their folder, but those without level or size."""
    indexes = {}
    for name in host.listdir(f"{CPU}/cpu{cpu}/cache"):
        if not re.fullmatch(r"index\d{1,2}", name):
            continue
        folder = f"{CPU}/cpu{cpu}/cache/{name}"
        level = whole_number(host.read(f"{folder}/level"), 1, 8)
        size = size_in_bytes(host.read(f"{folder}/size"))
        kind = _TYPES.get(host.read(f"{folder}/type"))
        if level is None or kind is None or not size or size > _LARGEST:
            continue
        cache: Cache = {"level": level, "type": kind, "size_bytes": size}
        for fact, file in (
            ("line_bytes", "coherency_line_size"),
            ("ways", "ways_of_associativity"),
        ):
            # Hypervisors and device trees that do not know say 0.
            number = whole_number(host.read(f"{folder}/{file}"), 1, 65536)
            if number is not None:
                cache[fact] = number
        indexes[name] = cache
    return indexes


def _shared(host: Host, cpu: int, name: str, online: set[int]) -> set[int]:
    """Return the CPUs that share this one's cache, itself at least; empty if it has none such."""
    folder = f"{CPU}/cpu{cpu}/cache/{name}"
    text = host.read(f"{folder}/shared_cpu_list")
    if not text and not host.exists(folder):
        return set()
    shared = set(parse_cpu_list(text)) & online
    return shared if cpu in shared else {cpu}


def _with_size(host: Host, cpu: int, name: str, cache: Cache) -> Cache:
    level = cache["level"]
    if isinstance(level, int) and level < _LAST_LEVELS:
        return cache
    size = size_in_bytes(host.read(f"{CPU}/cpu{cpu}/cache/{name}/size"))
    return {**cache, "size_bytes": size} if size and size <= _LARGEST else cache


def _from_cpuinfo(blocks: list[Block], known: set[FactValue]) -> list[Cache]:
    """Return the levels that only /proc/cpuinfo of s390x tells, without a count of instances."""
    listed: list[Cache] = []
    for block in blocks:
        for key, value in block.items():
            if not re.fullmatch(r"cache\d{1,2}", key):
                continue
            told = dict(re.findall(r"(\w+)=(\S+)", value))
            level = whole_number(told.get("level", ""), 1, 8)
            size = size_in_bytes(told.get("size", ""))
            kind = _TYPES.get(told.get("type", ""))
            if level is None or level in known or kind is None or not size or size > _LARGEST:
                continue
            cache: Cache = {"level": level, "type": kind, "size_bytes": size}
            for fact, name in (("line_bytes", "line_size"), ("ways", "associativity")):
                number = whole_number(told.get(name, ""), 1, 65536)
                if number is not None:
                    cache[fact] = number
            if cache not in listed:
                listed.append(cache)
    return listed


def _order(cache: Cache) -> tuple[int, str, int]:
    level, size = cache["level"], cache["size_bytes"]
    assert isinstance(level, int)
    assert isinstance(size, int)
    return level, str(cache["type"]), -size

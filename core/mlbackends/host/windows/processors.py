"""What Windows' calls return about processors and page files, decoded from bytes.

A CPU's number is 64 times its group's and its number in the group, as in hwloc.
Source: Intel SDM 2A; winnt.h, SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX; winternl, SYSTEM_PAGEFILE_INFORMATION.
"""

import struct
from collections.abc import Callable
from typing import Any

from mlbackends.base.quantities import format_cpu_list, parse_cpu_list

GROUP_SIZE = 64

_CORE, _NODE, _CACHE, _PACKAGE, _GROUP, _DIE, _NODE_IN_GROUPS = range(7)
_CACHE_TYPES = ("unified", "instruction", "data")
_FULLY_ASSOCIATIVE = 0xFF
# mov r8, rcx; mov r9, rbx; mov eax, [r8]; mov ecx, [r8+4]; cpuid; mov [r8], eax; mov [r8+4], ebx;
# mov [r8+8], ecx; mov [r8+12], edx; mov rbx, r9; ret: the stack stays as it is, so nothing need describe it
CPUID = "4989c84989d9418b00418b48040fa241890041895804418948084189500c4c89cbc3"
# mov r8, rcx; xor ecx, ecx; xgetbv; mov [r8], eax; mov [r8+4], edx; ret
#: Functions that take registers by their address, which Windows passes in rcx, and fill them in.
XGETBV = "4989c831c90f01d041890041895004c3"

#: Leaves of CPUID by the one whose EAX is the highest of its range.
_LEAVES = {
    0x0: (0x1, 0x7, 0xD, 0x16),
    0x4000_0000: (0x4000_0003,),
    0x8000_0000: (0x8000_0001, 0x8000_0002, 0x8000_0003, 0x8000_0004, 0x8000_0008),
}
_HYPERVISOR = 1 << 31


def cpus_in(mask: int, group: int = 0) -> list[int]:
    """Return the numbers of the CPUs in an affinity mask."""
    return [GROUP_SIZE * group + bit for bit in range(GROUP_SIZE) if mask >> bit & 1]


def cpuid_leaves(read: Callable[[int, int], list[int]]) -> dict[str, list[int]]:
    """Return the registers of the leaves that are used here, by their hexadecimal digits.

    read: executes CPUID for a leaf and a subleaf.
    """
    registers: dict[str, list[int]] = {}
    for first, leaves in _LEAVES.items():
        if first == 0x4000_0000 and not registers["1"][2] & _HYPERVISOR:
            continue
        registers[f"{first:x}"] = highest = read(first, 0)
        registers |= {f"{leaf:x}": read(leaf, 0) for leaf in leaves if leaf <= highest[0]}
    registers |= {f"{leaf}.1": read(int(leaf, 16), 1) for leaf in ("7", "d") if leaf in registers}
    return registers


def topology(data: bytes) -> dict[str, Any]:
    """Return cores, packages, dies, nodes, caches and groups, each with its CPUs as a list: "0-3,8"."""
    word = struct.calcsize("P")
    rows: dict[str, Any] = {name: [] for name in ("cores", "packages", "dies", "nodes", "caches", "groups")}
    nodes: dict[int, set[int]] = {}
    at = 0
    while at + 8 <= len(data):
        relation, size = struct.unpack_from("<II", data, at)
        if size < 8:
            break
        body = data[at + 8 : at + size]
        if relation == _CORE:
            rows["cores"].append({"cpus": _cpus(body, 22), "efficiency_class": body[1]})
        elif relation in (_PACKAGE, _DIE):
            rows["packages" if relation == _PACKAGE else "dies"].append(_cpus(body, 22))
        elif relation in (_NODE, _NODE_IN_GROUPS):
            (number,) = struct.unpack_from("<I", body)
            nodes.setdefault(number, set()).update(parse_cpu_list(_cpus(body, 22)))
        elif relation == _CACHE:
            level, ways, line, cache_size, kind = struct.unpack_from("<BBHII", body)
            cache = {"level": level, "size_bytes": cache_size, "line_bytes": line}
            cache |= {} if ways in (0, _FULLY_ASSOCIATIVE) else {"ways": ways}
            if kind < len(_CACHE_TYPES):
                cache |= {"type": _CACHE_TYPES[kind], "cpus": _cpus(body, 30)}
                rows["caches"].append(cache)
        elif relation == _GROUP:
            (count,) = struct.unpack_from("<H", body, 2)
            for group in range(count):
                mask = _number(body[24 + (group + 1) * (40 + word) - word :], word)
                rows["groups"].append({"group": group, "cpus": format_cpu_list(cpus_in(mask, group))})
        at += size
    rows["nodes"] = [{"node": number, "cpus": format_cpu_list(cpus)} for number, cpus in nodes.items()]
    return rows


def _cpus(body: bytes, at: int) -> str:
    """Return the CPUs of the GROUP_AFFINITY rows behind their count, which older systems leave 0."""
    word = struct.calcsize("P")
    (count,) = struct.unpack_from("<H", body, at)
    cpus: list[int] = []
    for row in range(max(count, 1)):
        start = at + 2 + row * (word + 8)
        (group,) = struct.unpack_from("<H", body, start + word)
        cpus += cpus_in(_number(body[start:], word), group)
    return format_cpu_list(cpus)


def _number(data: bytes, size: int) -> int:
    return int.from_bytes(data[:size], "little")


def page_files(data: bytes, address: int) -> list[dict[str, Any]]:
    """Return path and pages of each page file. address: of the bytes, into which a name points."""
    word = struct.calcsize("P")
    at, following = 0, -1
    rows: list[dict[str, Any]] = []
    while following and at + 32 <= len(data):
        following, total, used, _, length = struct.unpack_from("<IIIIH", data, at)
        start = _number(data[at + 16 + word :], word) - address
        name = data[start : start + length].decode("utf-16-le", "replace") if start > 0 else ""
        path = name.removeprefix("\\??\\").replace("\\", "/")
        rows += [{"path": path, "pages": total, "used": used}] if path else []
        at += following
    return rows


#: The first build (Server 2022, Windows 11) whose processes run in all groups by default.
_SPANS_GROUPS = 20348


def allowed_cpus(affinity: dict[str, Any], groups: list[dict[str, Any]], build: int) -> tuple[int, ...]:
    """Return the CPUs that a process may run on, by what `process_affinity` and `topology` returned."""
    own, mask = affinity["groups"], affinity["mask"]
    cpus_of = {row["group"]: parse_cpu_list(row["cpus"]) for row in groups}
    is_whole = not mask or mask == affinity["system_mask"]
    if len(cpus_of) > 1 and is_whole and (len(own) > 1 or build >= _SPANS_GROUPS):
        counted = cpus_of if build >= _SPANS_GROUPS else own
        return tuple(sorted(cpu for group in counted for cpu in cpus_of.get(group, ())))
    return tuple(cpus_in(mask, own[0] if own else 0))

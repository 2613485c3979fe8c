"""A machine's processors, memory and limits in a few phrases."""

import re
from collections.abc import Iterator, Mapping

from mlbackends.base.errors import counted
from mlbackends_cli.text.plain import binary_size, joined, quantity

Facts = Mapping[str, object]
_LARGEST = 1 << 62
_VECTORS = {
    "fma": "FMA", "vnni": "VNNI", "neon": "NEON", "dotprod": "DotProd", "i8mm": "I8MM", "bf16": "BF16",
    "fp16": "FP16", "amx": "AMX", "sve2": "SVE2", "sme": "SME", "mma": "MMA", "nnpa": "NNPA",
    "riscv_vector": "RVV",
}  # fmt: skip
_SET_BY = {
    "affinity": "by the affinity mask",
    "cpuset": "by the cpuset",
    "quota": "by the CPU quota",
    "memory_limit": "above which the kernel kills",
    "memory_high": "above which the kernel slows",
    "process_memory_limit": "by the job object, for each process",
}
_BY_JOB = {"quota": "by the job object", "memory_limit": "by the job object"}


# ---- facts that may be missing or of another type: a saved report can hold anything ---------


def index(facts: Facts, name: str) -> int | None:
    """Return a whole number from 0 on, or None for anything else."""
    value = facts.get(name)
    return value if type(value) is int and 0 <= value < _LARGEST else None


def number(facts: Facts, name: str) -> int:
    """Return a whole number above 0, or 0 for anything else."""
    return index(facts, name) or 0


def text(facts: Facts, name: str) -> str:
    """Return a text, or "" for anything else."""
    value = facts.get(name)
    return value if isinstance(value, str) else ""


def rows(facts: Facts, name: str) -> list[Facts]:
    """Return the records of a list, [] for anything else."""
    value = facts.get(name)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def numbers(facts: Facts, name: str) -> list[int]:
    """Return a list of whole numbers from 0 on; [] if it has anything else."""
    value = facts.get(name)
    found = [index({name: entry}, name) for entry in value] if isinstance(value, list) else []
    return [] if None in found else [number for number in found if number is not None]


# ---- phrases ------------------------------------------------------------------------------


def cpu(facts: Facts) -> Iterator[str]:
    """Yield the model; cores and clock; vector instructions; caches."""
    model = re.sub(r"\((R|r|TM|tm)\)", "", text(facts, "model_name"))
    design = text(facts, "microarchitecture")
    yield joined(model, design if design not in model else "")
    kinds = [
        f"{number(row, 'cores')} {text(row, 'name')}"
        for row in rows(facts, "kinds")
        if number(row, "cores") and text(row, "name")
    ]
    base, most, limit = (number(facts, f"{word}_hertz") for word in ("base", "max", "limit"))
    now = 0 if base or most else number(facts, "current_hertz")
    plan = text(facts, "power_mode") or text(facts, "power_plan")
    clock = [quantity("_hertz", base)] if base else []
    clock += [f"at most {quantity('_hertz', most)}"] if most and most != base else []
    clock += [f"limited to {quantity('_hertz', limit)}"] if 0 < limit < (most or base) else []
    clock += [f"{quantity('_hertz', now)} now"] if now else []
    clock += [f"power plan: {plan}"] if plan not in ("", "balanced") else []
    cores = f" ({' + '.join(kinds)})" if kinds else ""
    yield joined(
        _count(facts, "sockets", "socket") if number(facts, "sockets") > 1 else "",
        f"{_count(facts, 'cores', 'core')}{cores}" if number(facts, "cores") else "",
        _count(facts, "threads", "thread"),
        f"{groups} processor groups" if (groups := len(rows(facts, "processor_groups"))) else "",
        ", ".join(clock),
    )
    best = text(facts, "hardware_capability")
    # DEFAULT is torch's word for a processor without what its kernels are compiled for.
    names = {"sse4_2": "SSE4.2", "avx": "AVX", **_VECTORS} if best == "DEFAULT" else _VECTORS
    sets = [best if best != "DEFAULT" else "", *(names[name] for name in names if facts.get(name))]
    yield joined(" ".join(filter(None, sets)), text(facts, "x86_64_level"))
    levels: dict[str, list[str]] = {}
    for row in rows(facts, "caches"):
        letter = {"data": "d", "instruction": "i"}.get(text(row, "type"), "")
        size, count = binary_size(number(row, "size_bytes")), number(row, "instances")
        levels.setdefault(f"L{number(row, 'level')}{letter}", []).append(
            f"{count} × {size}" if count > 1 else size
        )
    yield joined(*((f"{level} {' + '.join(sizes)}" for level, sizes in levels.items())))


def memory(facts: Facts) -> Iterator[str]:
    """Yield the size of the memory and its division into nodes."""
    swap = "page file" if number(facts, "commit_limit_bytes") else "swap"
    sizes = [(f"{name}_bytes", word) for name, word in (
        ("total", "total"), ("available", "available"), ("swap_total", swap))]  # fmt: skip
    yield joined(*(
        f"{binary_size(number(facts, fact))} {word}" for fact, word in sizes if number(facts, fact)
    ))  # fmt: skip
    nodes = [size for row in rows(facts, "nodes") if (size := number(row, "total_bytes"))]
    each = [binary_size(size) for size in nodes]
    alike = f"{len(nodes)} NUMA nodes of {each[0]}" if nodes else ""
    pages = text(facts, "transparent_huge_pages")
    yield joined(
        "1 NUMA node" if len(nodes) == 1
        else alike if len(set(each)) < 2
        else f"{len(nodes)} NUMA nodes: {', '.join(each)}",
        f"transparent huge pages: {pages}" if pages else "",
    )  # fmt: skip


def limits(facts: Facts) -> Iterator[str]:
    """Yield the usable CPUs and memory, and the group or job that limits them."""
    exact, online = facts.get("effective_cpus_exact"), number(facts, "online_cpus")
    cpus = f"{exact:g}" if isinstance(exact, float) else str(number(facts, "effective_cpus") or "")
    reasons = _SET_BY | _BY_JOB if facts.get("job_object") else _SET_BY
    why = reasons.get(text(facts, "effective_cpus_because"), "")
    usable = f"{cpus} of {online} CPUs" if why and online else f"{cpus} CPU{'s' * (cpus != '1')}"
    size = number(facts, "effective_memory_bytes")
    bound = reasons.get(text(facts, "effective_memory_because"), "")
    used = number(facts, "memory_usage_bytes") if bound else 0
    processes = number(facts, "process_limit")
    group, scheduler = text(facts, "cgroup_version"), text(facts, "scheduler")
    granted = [_count(facts, f"scheduler_{word.lower()}s", word) for word in ("CPU", "GPU", "task")]
    yield joined(
        f"{usable} usable{f', {why}' if why else ''}" if cpus else "",
        f"{binary_size(size)} of memory, {bound}" if bound else "all memory" if size else "",
        f"{binary_size(used)} of it used" if used else "",
        f"at most {processes} processes" if processes else "",
        f"cgroup {group}" if group not in ("", "none") else "",
        f"{scheduler}: {', '.join(filter(None, granted))}".removesuffix(": ") if scheduler else "",
    )


def disks(facts: Facts) -> Iterator[str]:
    """Yield each file system: its free space and what it is for."""
    left = {text(row, "path"): number(row, "free_bytes") for row in rows(facts, "free")}
    for row in rows(facts, "file_systems"):
        path, size = text(row, "path"), binary_size(number(row, "total_bytes"))
        yield joined(path, f"{binary_size(left.get(path, 0))} free of {size}", text(row, "used_for"))


def _count(facts: Facts, fact: str, word: str) -> str:
    return counted(number(facts, fact), word) if number(facts, fact) else ""


#: The function that describes a probe in lines, by the probe's name.
ASPECTS = {"cpu": cpu, "memory": memory, "limits": limits, "disks": disks}

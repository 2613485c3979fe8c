"""What `run --fit` gives a program: as many threads of each runtime, and those CPUs, as its limits leave.

Most runtimes start a thread for each CPU that they see, and none of them looks at a CPU quota. Threads that
wait for each other while the quota stops some of them make a program many times slower: ollama#17916 has 12
tokens a second with 4 threads and a quota of 4, and 0.27 with 8. fitting.toml has the variables.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf

import msgspec
from msgspec import Struct

from mlbackends.base.quantities import format_cpu_list
from mlbackends.base.tables import table
from mlbackends.host.system import cgroups
from mlbackends.launch.cores import Core, Topology

_SAMPLE_SECONDS = 0.1


class Variable(Struct, frozen=True):
    """A row of fitting.toml."""

    name: str
    runtime: str
    of: str
    source: str
    option: str = ""


class Fit(Struct, frozen=True):
    """What a program gets.

    cpus: those to bind it to; () to leave its binding as it is. variables: those to set. kept: those that are
    set already, and stay. lines: what is done and why, in sentences.
    """

    cpus: tuple[int, ...]
    variables: dict[str, str]
    kept: dict[str, str]
    lines: tuple[str, ...]


def variables() -> tuple[Variable, ...]:
    """Return every variable that sets threads."""
    return msgspec.convert(table("launch/fitting.toml")["variable"], tuple[Variable, ...])


def fit(
    topology: Topology,
    quota: cgroups.Limit | None,
    environment: Mapping[str, str],
    busy: Callable[[], Mapping[int, float]],
) -> Fit:
    """Return what a program gets on a machine.

    topology: the cores that it may use. quota: the CPU time that its control groups leave. environment: the
    one that it would get. busy: returns how busy each CPU is, if a choice among them is needed.
    """
    rows = variables()
    usable, online = sum(len(core.cpus) for core in topology.cores), len(topology.online)
    limit = quota.value if quota else inf
    left = min(limit, usable)
    cpus = chosen(topology.cores, ceil(left), busy()) if ceil(left) < usable else ()
    # A thread more than the quota can run is enough to have all of them wait: 7.65 CPUs are 7 threads.
    whole = max(1, int(left))
    threads = {"cores": min(whole, len(topology.cores)), "cpus": whole}
    values, kept = {}, {}
    for row in rows:
        if row.of == "cpus" and whole >= online:
            continue  # these runtimes start a thread for each CPU anyway
        before = environment.get(row.name, "")
        if before and row.option in before:
            kept[row.name] = before
        else:
            values[row.name] = f"{before} {row.option}{threads[row.of]}".strip()
    if quota is not None and limit < inf:
        why = f"the CPU quota is {limit:g} of {usable} CPUs ({quota.folder})"
    elif usable < online:
        why = f"the affinity mask and the cpuset leave {usable} of {online} CPUs"
    else:
        why = f"nothing limits the {usable} CPUs of this machine"
    lines = [why]
    if cpus:
        nodes = {core.node for core in topology.cores if set(core.cpus) & set(cpus)}
        where = f"NUMA node {min(nodes)}" if len(nodes) == 1 else f"{len(nodes)} NUMA nodes"
        lines.append(f"bound to CPU {format_cpu_list(cpus)}, the least busy of {where}")
    for name, number in threads.items():
        names = [row.name for row in rows if row.of == name and row.name in values]
        if names:
            lines.append(f"{number} thread{'s' * (number != 1)}: {', '.join(names)}")
    return Fit(cpus, values, kept, tuple(lines))


def chosen(cores: Sequence[Core], count: int, busy: Mapping[int, float]) -> tuple[int, ...]:
    """Return the least busy CPUs, each of another core, of one NUMA node, as far as there are as many."""
    nodes = {core.node for core in cores}
    fitting = [node for node in nodes if sum(core.node == node for core in cores) >= count]

    def best(among: Sequence[Core]) -> list[int]:
        quiet_first = sorted(among, key=lambda core: sum(busy.get(cpu, 0.0) for cpu in core.cpus))
        ranks = range(max(len(core.cpus) for core in among))
        return [core.cpus[rank] for rank in ranks for core in quiet_first if rank < len(core.cpus)][:count]

    groups = [[core for core in cores if core.node == node] for node in sorted(fitting)] or [list(cores)]
    return tuple(sorted(min(map(best, groups), key=lambda cpus: sum(busy.get(cpu, 0.0) for cpu in cpus))))


def busy_cpus(topology: Topology) -> dict[int, float]:
    """Return how busy each CPU is for a tenth of a second, in percent; idle ones differ by chance.

    So programs that start together on an idle machine do not all choose the same CPUs.
    """
    import psutil

    shares = psutil.cpu_percent(_SAMPLE_SECONDS, percpu=True)
    return {cpu: share + random.random() for cpu, share in zip(topology.online, shares, strict=False)}  # noqa: S311

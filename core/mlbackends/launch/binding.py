"""How an instance is kept on its cores: by numactl, by taskset, or by the launcher itself.

numactl binds memory too, and needs a right that many containers take away; so it is tried with the
very cores and nodes that it will get, and taskset after it. Where neither may be used, the program
is started with the affinity mask it shall have, which needs no tool.
"""

import os
from collections.abc import Callable, Sequence
from typing import Literal

from mlbackends.launch.notices import Notice, information, warning
from mlbackends.launch.options import Options
from mlbackends.launch.planning import Instance

Tool = Literal["numactl", "taskset", "affinity", "none"]
"""What binds; "affinity" is the launcher by sched_setaffinity, "none" leaves instances unbound."""


def binding_command(tool: Tool, cpus: Sequence[int], memory_nodes: Sequence[int]) -> list[str]:
    """Return what stands before the program; nothing for "affinity" and "none"."""
    if tool == "numactl":
        nodes = ",".join(map(str, memory_nodes))
        return ["numactl", "-C", cpu_ranges(cpus), *(("-m", nodes) if nodes else ())]
    if tool == "taskset":
        return ["taskset", "-c", cpu_ranges(cpus)]
    return []


def cpu_ranges(cpus: Sequence[int]) -> str:
    """Return CPUs as numactl and taskset take them, in torch's spelling: 0-3,8-8."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{low}-{high}" for low, high in ranges)


def choose_tool(
    options: Options, instances: Sequence[Instance], works: Callable[[list[str]], bool]
) -> tuple[Tool, list[Notice]]:
    """Return what binds the instances on this machine.

    works: tells whether a program can be started behind such a command.
    """
    if options.disable_numactl and options.disable_taskset:
        return "none", []
    cpus = [cpu for one in instances for cpu in one.cpus]
    nodes = sorted({node for one in instances for node in one.memory_nodes})

    def binds(tool: Tool) -> bool:
        return works(binding_command(tool, cpus, nodes))

    if not options.disable_numactl and binds("numactl"):
        return "numactl", []
    notices: list[Notice] = []
    if not options.disable_numactl:
        notices.append(
            warning(
                "numactl is missing or may not bind here, so memory is not bound to NUMA nodes; "
                "that may be slower on a machine with several",
            )
        )
    if not options.disable_taskset and binds("taskset"):
        return "taskset", notices
    if not options.disable_taskset:
        notices.append(warning("taskset is missing or may not bind here"))
    notices.append(information("the launcher itself binds the instances to their cores"))
    return "affinity", notices


def can_start_behind(command: list[str]) -> bool:
    """Tell whether a program that does nothing can be started behind this binding command."""
    nothing = [
        (os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in range(3)
    ]
    try:
        process = os.posix_spawnp(
            command[0], [*command, "true"], dict(os.environ), file_actions=nothing
        )
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    except OSError:
        return False

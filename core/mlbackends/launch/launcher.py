"""A launch from its options to its exit code, and what binds the instances to their cores.

numactl binds memory too, and needs a right that many containers take away; so it is tried with the
very cores and nodes that it will get, and taskset after it. Where neither may be used, the program
is started with the affinity mask that it shall have, which needs no tool.
"""

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.launch.cores import Topology, read_topology
from mlbackends.launch.notices import Notice, Refused, information, warning
from mlbackends.launch.options import Options
from mlbackends.launch.planning import Instance, plan
from mlbackends.launch.processes import Child, executable, run
from mlbackends.launch.variables import THREADS, child_environment

_NO_NUMACTL = (
    "numactl is missing or may not bind here, so memory is not bound to NUMA nodes;"
    " that may be slower on a machine with several"
)


class Launch(Struct, frozen=True):
    """Programs that are ready to be started, and the notices to show before."""

    children: tuple[Child, ...]
    notices: tuple[Notice, ...]


def launch(
    options: Options,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    say: Callable[[str, str], None] | None = None,
) -> int:
    """Start a program on its cores, once or several times, and return the first failure's exit code.

    command: a Python script and its arguments; with `module` a module's name, with `no_python` any
    command. environment: the programs' own before ours is added; this process's by default. say:
    gets each notice as a level ("INFO", "WARNING", "ERROR") and a sentence; by default it goes to
    standard error. 0 if no program failed, 128 + N for one that signal N ended.

    Raises before anything is started, and each is an MlBackendsError too: RuntimeError for options
    that contradict each other or ask for too much, ValueError for a value that cannot be read or a
    node that is not there, KeyError for a CPU that is not there, AssertionError for fewer cores
    than torchrun's ranks.
    """
    say = say or write_notice
    prepared = prepare(options, command, environment)
    for level, sentence in prepared.notices:
        say(level, sentence)
    return run(
        prepared.children, say, log_path=options.log_path, log_file_prefix=options.log_file_prefix
    )


def prepare(
    options: Options,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    topology: Topology | None = None,
    works: Callable[[list[str]], bool] | None = None,
) -> Launch:
    """Return what `launch` would start, without starting it.

    topology: the cores; those of this machine by default. works: tells whether a binding command
    can be used; it is tried by default. Raises as `launch` does.
    """
    program = program_command(options, command)
    found = os.environ if environment is None else environment
    planned = plan(options, topology or read_topology(Host()), found)
    merged, of_environment = child_environment(options, planned, found)
    executable(program[0], merged)
    tool, of_binding = choose_tool(options, planned.instances, works or can_start_behind)
    children = tuple(
        Child(
            (*binding_command(tool, one.cpus, one.memory_nodes), *program),
            # As many threads of OpenMP as the instance has CPUs, unless that was set.
            merged if THREADS in found else {**merged, THREADS: str(len(one.cpus))},
            one.cpus if tool == "affinity" else (),
        )
        for one in planned.instances
    )
    commands = [information(shlex.join(child.command)) for child in children]
    return Launch(children, (*planned.notices, *of_binding, *of_environment, *commands))


def program_command(options: Options, command: Sequence[str]) -> list[str]:
    """Return the command of each instance without what binds it; raises Refused where it makes none."""
    if options.latency_mode and options.throughput_mode:
        raise Refused("--latency-mode and --throughput-mode exclude each other; give one of them")
    if not command:
        raise Refused("no program was given")
    if options.no_python:
        if options.module:
            raise Refused(
                "--module needs python, and --no-python goes without it; give one of them"
            )
        return list(command)
    if not options.module and not command[0].endswith(".py"):
        raise Refused(
            f"{command[0]} is not a Python script (.py): for another program give --no-python, "
            "for a module --module"
        )
    return [sys.executable, "-u", *(("-m",) if options.module else ()), *command]


def write_notice(level: str, sentence: str) -> None:
    """Write a line to standard error: time, name, level and sentence, as torch's launcher has them."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    line = f"{stamp},{int(now * 1000) % 1000:03d} - mlbackends.launch - {level} - {sentence}\n"
    if sys.stderr is not None:
        sys.stderr.write(line)
        sys.stderr.flush()


def binding_command(tool: str, cpus: Sequence[int], memory_nodes: Sequence[int]) -> list[str]:
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
) -> tuple[str, list[Notice]]:
    """Return what binds the instances on this machine: "numactl", "taskset", "affinity" or "none".

    "affinity" is the launcher itself by sched_setaffinity; "none" leaves the instances unbound.
    works: tells whether a program can be started behind such a command.
    """
    if options.disable_numactl and options.disable_taskset:
        return "none", []
    cpus = [cpu for one in instances for cpu in one.cpus]
    nodes = sorted({node for one in instances for node in one.memory_nodes})
    notices: list[Notice] = []
    for tool, is_disabled, otherwise in (
        ("numactl", options.disable_numactl, _NO_NUMACTL),
        ("taskset", options.disable_taskset, "taskset is missing or may not bind here"),
    ):
        if is_disabled:
            continue
        if works(binding_command(tool, cpus, nodes)):
            return tool, notices
        notices.append(warning(otherwise))
    notices.append(information("the launcher itself binds the instances to their cores"))
    return "affinity", notices


def can_start_behind(command: list[str]) -> bool:
    """Tell whether a program that does nothing can be started behind this binding command."""
    silent = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    arguments = [*command, "true"]
    try:
        process = os.posix_spawnp(arguments[0], arguments, dict(os.environ), file_actions=silent)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    except OSError:
        return False

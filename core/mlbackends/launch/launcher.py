"""A launch from its options to its exit code, and what binds the instances to their cores.

numactl binds memory too, but needs a right that many containers withhold. It is therefore tried with the
cores and nodes that it will get; without it the launcher sets the affinity of each program itself.
"""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence

from mlbackends.base.notices import Notice, information, warning
from mlbackends.base.patterns import without_secrets
from mlbackends.base.quantities import format_cpu_list
from mlbackends.host.host import Host
from mlbackends.launch.cores import Topology, read_topology
from mlbackends.launch.options import Options, Refused
from mlbackends.launch.planning import Instance, plan
from mlbackends.launch.processes import Child, executable, run
from mlbackends.launch.variables import THREADS, child_environment


def launch(
    options: Options,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    say: Callable[[str, str], None],
) -> int:
    """Start a program on its cores, once or several times, and return the first failure's exit code.

    command: a Python script and its arguments; with `module` a module's name, with `no_python` any
    command. environment: the base of the programs' environment; this process's by default. say:
    receives each notice as a level and a sentence.

    Raises before anything is started: Refused (a RuntimeError), BadInput (a ValueError) or UnknownCpu (a
    KeyError), as torch does.
    """
    children, notices = prepare(options, command, environment)
    for level, sentence in notices:
        say(level, sentence)
    return run(children, say, log_path=options.log_path, log_file_prefix=options.log_file_prefix)


def prepare(
    options: Options,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    topology: Topology | None = None,
    works: Callable[[list[str]], bool] | None = None,
) -> tuple[list[Child], list[Notice]]:
    """Return the programs that `launch` would start, and its notices. Raises as `launch` does.

    topology: the cores; this machine's by default. works: tells whether a binding command can be
    used; it is tried by default.
    """
    program = program_command(options, command)
    inherited = os.environ if environment is None else environment
    planned = plan(options, topology or read_topology(Host()), inherited)
    merged, notices = child_environment(options, planned, inherited)
    executable(program[0], merged)
    cpus = sorted(cpu for instance in planned.instances for cpu in instance.cpus)
    nodes = sorted({node for instance in planned.instances for node in instance.memory_nodes})
    by_numactl = not options.disable_numactl
    if by_numactl and not (works or can_start_behind)(numactl(Instance(tuple(cpus), tuple(nodes)))):
        by_numactl = False
        notices.append(
            warning(
                "numactl is missing or may not bind here, so memory is not bound to NUMA nodes;"
                " that may be slower on a machine with several"
            )
        )
    is_bound = not (options.disable_numactl and options.disable_taskset)
    children = [
        Child(
            (*(numactl(instance) if by_numactl else ()), *program),
            # As many threads of OpenMP as the instance has CPUs, unless that was set.
            merged if THREADS in inherited else {**merged, THREADS: str(len(instance.cpus))},
            instance.cpus if is_bound and not by_numactl else (),
        )
        for instance in planned.instances
    ]
    commands = [information(without_secrets(shlex.join(child.command))) for child in children]
    return children, [*planned.notices, *notices, *commands]


def program_command(options: Options, command: Sequence[str]) -> list[str]:
    """Return the command of each instance, without what binds it; raises Refused for contradictions."""
    if options.latency_mode and options.throughput_mode:
        raise Refused("--latency-mode and --throughput-mode cannot be combined; give one of them")
    if not command:
        raise Refused("no program was given")
    if options.no_python:
        if options.module:
            raise Refused("--module needs python and --no-python excludes it; give one of them")
        return list(command)
    if not options.module and not command[0].endswith(".py"):
        raise Refused(
            f"{command[0]} is not a Python script (.py): for another program give --no-python, "
            "for a module --module"
        )
    return [sys.executable, "-u", *(("-m",) if options.module else ()), *command]


def numactl(instance: Instance) -> list[str]:
    """Return the command that binds an instance to its CPUs, and its memory to their nodes."""
    memory = ("-m", ",".join(map(str, instance.memory_nodes))) if instance.memory_nodes else ()
    return ["numactl", "-C", format_cpu_list(instance.cpus), *memory]


def can_start_behind(command: list[str]) -> bool:
    """Return whether a program that does nothing can be started by this binding command."""
    silent = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    arguments = [*command, "true"]
    try:
        process = os.posix_spawnp(arguments[0], arguments, dict(os.environ), file_actions=silent)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    except OSError:
        return False

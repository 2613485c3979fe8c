"""A launch from its options to its exit code."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from mlbackends.launch.notices import Notice, information
from mlbackends.launch.options import Options
from mlbackends.launch.refusals import Refused

if TYPE_CHECKING:
    from mlbackends.launch.running import Child
    from mlbackends.launch.topology import Topology


class Launch(Struct, frozen=True):
    """Programs that are ready to be started, and what is to be told before."""

    children: "tuple[Child, ...]"
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
    gets what is told on the way as a level ("INFO", "WARNING", "ERROR") and a sentence; it goes to
    standard error by default. 0 if no program failed, 128 + N for one that signal N ended.

    Raises before anything is started, and each is an MlBackendsError too: RuntimeError for options
    that contradict each other or ask for too much, ValueError for a value that cannot be read or a
    node that is not there, KeyError for a CPU that is not there, AssertionError for fewer cores
    than torchrun's ranks.
    """
    from mlbackends.launch.running import run

    say = say or tell
    made = prepare(options, command, environment)
    for level, sentence in made.notices:
        say(level, sentence)
    return run(
        made.children,
        say,
        log_path=options.log_path,
        log_file_prefix=options.log_file_prefix,
    )


def prepare(
    options: Options,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    topology: "Topology | None" = None,
    works: Callable[[list[str]], bool] | None = None,
) -> Launch:
    """Return what `launch` would start, without starting it.

    topology: the cores; those of this machine by default. works: tells whether a binding command
    can be used; it is tried by default. Raises as `launch` does.
    """
    import os
    import shlex

    from mlbackends.host.host import Host
    from mlbackends.launch.binding import binding_command, can_start_behind, choose_tool
    from mlbackends.launch.child_environment import child_environment
    from mlbackends.launch.planning import plan
    from mlbackends.launch.running import Child, executable
    from mlbackends.launch.topology import read_topology

    program = program_command(options, command)
    found = os.environ if environment is None else environment
    planned = plan(options, topology or read_topology(Host()), found)
    made, of_environment = child_environment(options, planned, found)
    executable(program[0], made)
    tool, of_binding = choose_tool(options, planned.instances, works or can_start_behind)
    children = tuple(
        Child(
            (*binding_command(tool, one.cpus, one.memory_nodes), *program),
            made,
            one.cpus if tool == "affinity" else (),
        )
        for one in planned.instances
    )
    commands: list[Notice] = [information(shlex.join(child.command)) for child in children]
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


def tell(level: str, sentence: str) -> None:
    """Write a line to standard error: time, name, level and sentence, as torch's launcher has them."""
    import time

    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    line = f"{stamp},{int(now * 1000) % 1000:03d} - mlbackends.launch - {level} - {sentence}\n"
    if sys.stderr is not None:
        sys.stderr.write(line)
        sys.stderr.flush()

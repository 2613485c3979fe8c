"""`python -m mlbackends.xeon.run_cpu [options] program [arguments]`: a program on chosen cores.

The options are those of `python -m torch.backends.xeon.run_cpu`. The exit code is that of the first
instance that failed, and 2 where the command line is wrong. What stands after the program is passed to
it, whatever it looks like.
"""

import argparse
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from mlbackends.base.errors import MlBackendsError
from mlbackends.host.host import Host
from mlbackends.launch.cores import parse_lscpu, read_topology
from mlbackends.launch.launcher import launch, write_notice
from mlbackends.launch.notices import Refused, UnknownCpu
from mlbackends.launch.options import OPTIONS, Options

__all__ = ["CPUinfo", "create_args", "main", "run"]


class CPUinfo:
    """Which CPUs and physical cores there are, and on which NUMA nodes.

    test_input: what `lscpu --parse=CPU,Core,Socket,Node` prints, to read instead of this machine;
    of this machine only what this process may use counts. A physical core is named by the lowest
    of its CPUs, for CPUs are what can be bound. Raises RuntimeError where the system is not Linux,
    ValueError for a `test_input` that lscpu does not print.
    """

    def __init__(self, test_input: str = "") -> None:
        self.topology = parse_lscpu(test_input) if test_input else read_topology(Host())

    def physical_core_nums(self) -> int:
        """Return how many physical cores there are, on all nodes."""
        return len(self.topology.cores)

    def logical_core_nums(self) -> int:
        """Return how many CPUs there are: hyper-threads count."""
        return len(self.topology.logical())

    def get_node_physical_cores(self, node_id: int) -> list[int]:
        """Return one CPU of each core of a node; raises ValueError for a node that is not there."""
        return list(self.topology.physical(node_id))

    def get_node_logical_cores(self, node_id: int) -> list[int]:
        """Return the CPUs of a node; raises ValueError for a node that is not there."""
        return sorted(self.topology.logical(node_id))

    def get_all_physical_cores(self) -> list[int]:
        """Return one CPU of each core, node by node."""
        return list(self.topology.physical())

    def get_all_logical_cores(self) -> list[int]:
        """Return every CPU, node by node."""
        return [cpu for node in self.topology.nodes for cpu in self.get_node_logical_cores(node)]

    def numa_aware_check(self, core_list: Iterable[int]) -> list[int]:
        """Return the nodes on which these CPUs lie, sorted; more than one gives a warning.

        Raises KeyError for a CPU that is not there, RuntimeError for an empty list.
        """
        owner = self.topology.node_of()
        cpus = list(core_list)
        for cpu in cpus:
            if cpu not in owner:
                raise UnknownCpu(f"CPU {cpu} is off, or not there, or not for this process")
        nodes = sorted({owner[cpu] for cpu in cpus})
        if not nodes:
            raise Refused("invalid number of NUMA nodes; please make sure numa_ids >= 1")
        if len(nodes) > 1:
            write_notice("WARNING", f"the cores {cpus} lie on several NUMA nodes: {nodes}")
        return nodes

    # The names in torch.
    _physical_core_nums = physical_core_nums
    _logical_core_nums = logical_core_nums


_NAME = "python -m mlbackends.xeon.run_cpu"
_DESCRIPTION = """Start a program on chosen cores, once or several times side by side.

Each instance is bound to its cores and, by numactl, to the memory near them; it gets as many OpenMP
threads as it has cores, Intel's OpenMP runtime and a faster allocator where they are installed.
"""
_EXAMPLES = """examples:
  one instance on all physical cores     run_cpu train.py --epochs 3
  one instance per NUMA node             run_cpu --throughput-mode serve.py
  two instances of four cores            run_cpu --ninstances 2 --ncores-per-instance 4 serve.py
  a command that is no Python script     run_cpu --cores 0-3 --no-python ./server
"""

_CPUinfo = CPUinfo
#: The option that takes one number or several.
SEVERAL = "ncores_per_instance"
_SEVERAL_FLAGS = ("--ncores-per-instance", "--ncores_per_instance")
#: The most characters of an error that are shown: a value may have any number.
_LONGEST = 400


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, which begins as every other of this command."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, _one_line(message))


def _one_line(message: str) -> str:
    line = "".join(each if each.isprintable() else "\ufffd" for each in " ".join(message.split()))
    return f"run_cpu: error: {line if len(line) <= _LONGEST else line[:_LONGEST] + '...'}\n"


def create_args(parser: argparse.ArgumentParser | None = None) -> argparse.ArgumentParser:
    """Add every option, and the program with its arguments, to a parser; return it."""
    parser = parser or _Parser(
        prog=_NAME,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    groups = {
        group: parser.add_argument_group(*group)
        for group in dict.fromkeys(option.group for option in OPTIONS)
    }
    for option in OPTIONS:
        settings: dict[str, Any] = {"action": "store_true"}
        if option.kind is not bool:
            settings = {"type": option.kind, "default": option.default, "metavar": option.metavar}
            if option.name == SEVERAL:
                settings["nargs"] = "+"
        groups[option.group].add_argument(
            *option.flags, dest=option.name, help=option.help, **settings
        )
    parser.add_argument("program", help="The script, module or command to start.")
    parser.add_argument("program_args", nargs=argparse.REMAINDER, help="Its arguments.")
    return parser


def main(args: argparse.Namespace) -> int:
    """Launch what was parsed and return the exit code; raises as `launch` does."""
    options = options_of(args)
    return launch(options, [args.program, *args.program_args])


def options_of(args: argparse.Namespace) -> Options:
    """Return what was parsed as the settings of a launch."""
    values = {option.name: getattr(args, option.name) for option in OPTIONS}
    sizes = values[SEVERAL]
    values[SEVERAL] = (
        sizes if isinstance(sizes, int) else sizes[0] if len(sizes) == 1 else tuple(sizes)
    )
    return Options(**values)


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code; a mistake in it is one line, and 2."""
    parser = create_args()
    own, command = split(arguments)
    # After "--" nothing is an option any more, so the program's arguments are never looked at.
    args = parser.parse_args([*own, "--", command[0]] if command else own)
    args.program_args = command[1:]
    try:
        return main(args)
    except MlBackendsError as error:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(_one_line(f"{error}{hint}"))
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the launcher's own arguments, and the program with its arguments.

    The program is the first word that is no option and no option's value; a "--" before it goes.
    """
    valued = {flag: option.kind is not bool for option in OPTIONS for flag in option.flags}
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            return arguments[:at], arguments[at + 1 :]
        if not word.startswith("-") or word == "-":
            break
        # A beginning stands for the option.
        flags = [word] if word in valued or not word.startswith("--") else list(valued)
        matching = [each for each in flags if each.startswith(word)]
        at += 2 if any(valued.get(each) for each in matching) else 1
        while any(each in _SEVERAL_FLAGS for each in matching) and arguments[at : at + 1]:
            if not arguments[at].isdecimal():
                break
            at += 1
    return arguments[:at], arguments[at:]


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

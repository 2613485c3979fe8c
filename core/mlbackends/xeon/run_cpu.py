"""`python -m mlbackends.xeon.run_cpu [options] program [arguments]`: a program on chosen cores.

The options are those of `python -m torch.backends.xeon.run_cpu`. The exit code is that of the first
instance that failed, and 2 where something was asked wrongly. What stands after the program is the
program's, whatever it looks like.
"""

import argparse
import sys
from typing import NoReturn

from mlbackends.launch.launcher import launch
from mlbackends.launch.options import OPTIONS, Option, Options
from mlbackends.model.errors import MlBackendsError
from mlbackends.xeon.cpu_info import CPUinfo

__all__ = ["CPUinfo", "create_args", "main", "run"]

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
_LONGEST = 400
"""So many characters of an error are told: a value that was given may have any number."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, which begins as every other of this command."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        self.exit(2, _told(message))


def _told(message: str) -> str:
    line = " ".join(message.split())
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
        _add(groups[option.group], option)
    parser.add_argument("program", help="The script, module or command to start.")
    parser.add_argument("program_args", nargs=argparse.REMAINDER, help="Its arguments.")
    return parser


def _add(group: "argparse._ArgumentGroup", option: Option) -> None:
    if option.kind is bool:
        group.add_argument(*option.flags, dest=option.name, action="store_true", help=option.help)
    else:
        group.add_argument(
            *option.flags,
            dest=option.name,
            type=option.kind,
            default=option.default,
            metavar=option.metavar,
            help=option.help,
        )


def main(args: argparse.Namespace) -> int:
    """Launch what was parsed and return the exit code; raises as `launch` does."""
    options = Options(**{option.name: getattr(args, option.name) for option in OPTIONS})
    return launch(options, [args.program, *args.program_args])


def run(arguments: list[str]) -> int:
    """Do what the command line says and return the exit code; misuse is told in one line, as 2."""
    parser = create_args()
    own, command = split(arguments)
    # After "--" nothing is an option any more, so the program's arguments are never looked at.
    args = parser.parse_args([*own, "--", command[0]] if command else own)
    args.program_args = command[1:]
    try:
        return main(args)
    except MlBackendsError as error:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(_told(f"{error}{hint}"))
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the launcher's own arguments, and the program with its arguments.

    The program is the first word that is no option and no option's value; a "--" before it goes.
    """
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            return arguments[:at], arguments[at + 1 :]
        if not word.startswith("-") or word == "-":
            break
        at += 2 if _takes_next(word) else 1
    return arguments[:at], arguments[at:]


def _takes_next(word: str) -> bool:
    """Tell whether the word after this option is its value; a beginning stands for the option."""
    valued = {flag: option.kind is not bool for option in OPTIONS for flag in option.flags}
    if word in valued:
        return valued[word]
    if not word.startswith("--"):
        return False
    return any(takes for flag, takes in valued.items() if flag.startswith(word))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

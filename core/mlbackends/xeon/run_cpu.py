"""`python -m mlbackends.xeon.run_cpu [options] program [arguments]`: a program on chosen cores.

The options are those of `python -m torch.backends.xeon.run_cpu`. The exit code is that of the first
instance that failed, and 2 for a wrong command line. Arguments of the program are passed on unread.
"""

import argparse
import sys
from typing import Any

from mlbackends.base.errors import MlBackendsError
from mlbackends.launch.launcher import launch
from mlbackends.launch.options import OPTIONS, Options

__all__ = ["create_args", "main", "run"]

_NAME = "python -m mlbackends.xeon.run_cpu"
_DESCRIPTION = """Start a program on chosen cores, once or several times side by side.

Each instance is bound to its cores and, by numactl, to the memory near them; it gets as many OpenMP
threads as it has cores, and Intel's OpenMP runtime and a faster allocator if they are installed.
"""
_EXAMPLES = """examples:
  one instance on all physical cores     run_cpu train.py --epochs 3
  one instance per NUMA node             run_cpu --throughput-mode serve.py
  two instances of four cores            run_cpu --ninstances 2 --ncores-per-instance 4 serve.py
  a command that is not a Python script  run_cpu --cores 0-3 --no-python ./server
"""


def create_args(parser: argparse.ArgumentParser | None = None) -> argparse.ArgumentParser:
    """Add every option, and the program with its arguments, to a parser; return it."""
    parser = parser or argparse.ArgumentParser(
        prog=_NAME,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    groups = {
        title: parser.add_argument_group(title) for title in dict.fromkeys(option.group for option in OPTIONS)
    }
    for option in OPTIONS:
        settings: dict[str, Any] = {"action": "store_true"}
        if option.kind is not bool:
            settings = {"type": option.kind, "default": option.default, "metavar": option.metavar}
        groups[option.group].add_argument(*option.flags, dest=option.name, help=option.help, **settings)
    parser.add_argument("program", help="The script, module or command to start.")
    parser.add_argument("program_args", nargs=argparse.REMAINDER, help="Its arguments.")
    return parser


def main(args: argparse.Namespace) -> int:
    """Launch what was parsed and return the exit code; raises as `launch` does."""
    options = Options(**{option.name: getattr(args, option.name) for option in OPTIONS})
    return launch(options, [args.program, *args.program_args], say=say)


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit code; a mistake in it is one line, and 2."""
    args = create_args().parse_args(arguments)
    try:
        return main(args)
    except MlBackendsError as error:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(f"run_cpu: error: {' '.join(f'{error}{hint}'.split())}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def say(level: str, sentence: str) -> None:
    """Write a notice as a line of standard error."""
    if sys.stderr is not None:
        sys.stderr.write(f"run_cpu: {level} - {sentence}\n")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

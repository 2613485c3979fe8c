"""Start a program with switches set in its torch, MKL, oneDNN and OpenMP.

The program is not edited: switches reach it by the variables that the libraries read, and where
there is none by an import hook that sets them when torch has been imported, and reads each back.
Programs that it starts in turn inherit both. Variables of these switches that are set already
are replaced. Variables that begin with MLBACKENDS_, and below them the file that MLBACKENDS_FLAGS
names, are carried as well, unless --set or --flags overrides them. The program takes the
place of backends: input, output, terminal, signals and the exit code are its own.

A switch that cannot be applied is an error, with exit code 2 and before the program starts where
its Python and its torch can be found: COMMAND is a python, or a script whose first line names one.
Behind anything else, such as a shell script or mpirun, and for what only torch knows, the program
ends with one line and exit code 2 when it imports torch. Nothing arrives in a program that is
given another environment (env -i, ssh), and torch's own switches do not in a python -I, -E or -S.

With --fit, the program gets as many threads as its CPU quota, affinity mask and cpuset leave, by the
variables of OpenMP, MKL, OpenBLAS, BLIS, numexpr, Numba, TensorFlow, XLA, llama.cpp, rayon, polars, Go,
Python and Java, and below a CPU quota it is bound to as many of the least busy CPUs of a NUMA node, which
runtimes without a variable follow, such as oneTBB and OpenVINO. Variables that are set already stay.
What is set is printed, and why.

With any of the options of cores, instances and allocators, the program is bound to its cores and
started once for each instance, as python -m torch.backends.xeon.run_cpu does it; the exit code
is then that of the first instance that failed. Each of these options is also taken with
underscores for its dashes. A COMMAND that is a Python script and not
executable is started by the python of backends.

Examples:
  backends run --set cudnn.benchmark=true -- python train.py
  backends run --set fp32_precision=ieee --set mkl.num_threads=4 -- python -m pkg.train --lr 0.1
  backends run --flags exact.toml --set cuda.math_sdp=false -- torchrun --nproc-per-node 2 train.py
  backends run --set mkldnn.verbose_level=1 -- pytest tests
  backends run --fit -- python serve.py
  backends run --cores 0-3,8 -- python serve.py
  backends run --throughput-mode --set quantized.engine=x86 -- python serve.py
"""

import os
from collections.abc import Mapping
from typing import Any

import click
from msgspec.structs import replace

from mlbackends.base.errors import BadInput
from mlbackends.host.host import Host
from mlbackends.inject import (
    injected,
    is_plain_script,
    merged,
    replace_process,
    requested,
    startable,
)
from mlbackends.launch.options import OPTIONS, Options
from mlbackends_cli import output
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import option, together
from mlbackends_cli.switches.commands.flags import complete_setting

#: The options of the launcher, from their table.
_launch_options = together(
    *(
        click.option(
            *(flag for flag in option.flags if "_" not in flag),
            option.name,
            is_flag=option.kind is bool,
            type=None if option.kind is bool else option.kind,
            default=option.default,
            metavar=option.metavar or None,
            help=option.help,
        )
        for option in OPTIONS
    )
)


@documented(
    context_settings={
        # What follows COMMAND is its own, whatever it looks like.
        "allow_interspersed_args": False,
        # run_cpu spells its options with underscores too.
        "token_normalize_func": lambda name: name.replace("_", "-"),
    }
)
@option("--set texts NAME=VALUE", "set", many=True, shell_complete=complete_setting)
@option("--flags files FILE.toml", "flags", many=True)
@option("--fit fits", "Set the threads of every runtime, and the CPUs, to what the limits leave.")
@_launch_options
@click.argument("command_line", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    texts: tuple[str, ...],
    files: tuple[str, ...],
    fits: bool,
    command_line: tuple[str, ...],
    **launch_options: Any,
) -> int:
    environment = dict(os.environ)
    search_path = environment.get("PATH", os.defpath)
    values = merged(requested(texts, files), environment)
    options = Options(**launch_options)
    if fits and options != Options():
        raise BadInput("--fit chooses the cores itself", "leave out the options of cores and instances")
    if fits:
        environment |= _fitted(environment)
    if options == Options():
        program = startable(command_line, search_path)
        replace_process(program, injected(values, program, environment))

    from mlbackends.launch.launcher import launch, program_command

    # run_cpu starts scripts alone; whatever starts by itself needs no --no-python here.
    by_python = options.module or is_plain_script(command_line[0], search_path)
    options = replace(options, no_python=options.no_python or not by_python)
    program = program_command(options, command_line)
    variables = injected(values, program, environment)

    def log(level: str, sentence: str) -> None:
        output.log(f"{'warning: ' if level == 'WARNING' else ''}{sentence}")

    return launch(options, command_line, variables, say=log)


def _fitted(environment: Mapping[str, str]) -> dict[str, str]:
    """Bind this process, whose place the program takes, to its CPUs; return the variables to set."""
    from mlbackends.host.system.cgroups import cpu_quota
    from mlbackends.launch.cores import read_topology
    from mlbackends.launch.fitting import busy_cpus, fit

    host = Host()
    topology = read_topology(host)
    fitted = fit(topology, cpu_quota(host), environment, lambda: busy_cpus(topology))
    if fitted.cpus:
        os.sched_setaffinity(0, fitted.cpus)
    for sentence in fitted.lines:
        output.log(sentence)
    for name, value in fitted.kept.items():
        output.log(f"warning: {name} is set already and stays {value}")
    return fitted.variables

"""Run a command with MKL's tracing on."""

from typing import Any

import click

from mlbackends_cli.traces.capture import SETTINGS, capture_options, help_of, run


@click.command(
    "mkl",
    context_settings=SETTINGS,
    help=help_of("MKL's") + "\n    MKL itself appends its lines to the file (2021.4 and newer).\n",
    epilog="""\b
Examples:
  backends trace mkl -- python solve.py
  backends trace mkl -o solve.log --summary full -- ./solver --size 1000
  backends trace mkl --rank-env OMPI_COMM_WORLD_RANK -- mpirun -n 4 ./solver
""",
)
@capture_options(of_onednn=False)
def command(**options: Any) -> int:
    """Run a command with MKL's tracing on."""
    return run(("mkl",), **options)

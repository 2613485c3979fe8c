"""Run a command with the tracing of MKL and oneDNN on."""

from typing import Any

import click

from mlbackends_cli.traces.capture import SEPARATED, SETTINGS, capture_options, help_of, run


@click.command(
    "all",
    context_settings=SETTINGS,
    help=help_of("MKL's and oneDNN's") + SEPARATED,
    epilog="""\b
Examples:
  backends trace all -- python train.py
  backends trace all --append -o nightly.log --summary none -- pytest tests
""",
)
@capture_options(of_onednn=True)
def command(**options: Any) -> int:
    """Run a command with the tracing of MKL and oneDNN on."""
    return run(("mkl", "onednn"), **options)

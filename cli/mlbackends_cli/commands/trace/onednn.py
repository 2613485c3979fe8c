"""Run a command with oneDNN's tracing on."""

from typing import Any

import click

from mlbackends_cli.traces.capture import SEPARATED, SETTINGS, capture_options, help_of, run


@click.command(
    "onednn",
    context_settings=SETTINGS,
    help=help_of("oneDNN's") + SEPARATED,
    epilog="""\b
Examples:
  backends trace onednn -- python train.py
  backends trace onednn --level dispatch --summary full -- python infer.py
  backends trace onednn --live -o train.log -- torchrun --nproc-per-node 2 train.py
""",
)
@capture_options(of_onednn=True)
def command(**options: Any) -> int:
    """Run a command with oneDNN's tracing on."""
    return run(("onednn",), **options)

"""Explain a hazard, a switch, a reason code, or where mlbackends and torch differ."""

from typing import TYPE_CHECKING

import click

from mlbackends.cli.options import COLOR, OUTPUT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mlbackends.cli.prose import Passage


def _complete(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    del ctx, param
    from click.shell_completion import CompletionItem

    from mlbackends.cli import topics

    return [CompletionItem(name) for name in topics.names() if name.startswith(incomplete)]


@click.command(
    epilog="""\b
Examples:
  backends explain                       what can be explained
  backends explain deviations            where mlbackends and torch.backends differ, and why
  backends explain openmp-two-runtimes   what a finding of `backends doctor` means
  backends explain cudnn.benchmark       one switch
  backends explain cuda.matmul           every switch of a group
  backends explain dlopen-failed         one reason code
"""
)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=_complete)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown"]),
    default="text",
    show_default=True,
    help="How to print it.",
)
@OUTPUT
@COLOR
def command(topics: tuple[str, ...], form: str, output: str, color: str) -> None:
    """Explain a hazard, a switch, a reason code, or where mlbackends and torch differ.

    TOPIC is the name of a switch or of a group of them, a code from what `backends doctor` finds or from
    the reasons of a report, the code of a deviation, or hazards or deviations for all of those. Without
    TOPIC: all that there is.
    """
    from mlbackends.cli import prose
    from mlbackends.cli import topics as known
    from mlbackends.cli.output import write
    from mlbackends.cli.terminal import page

    passages: list[Passage] = []
    for topic in topics or ("",):
        passages += known.explained(topic)
    if form == "markdown":
        write(prose.markdown(tuple(passages)), output)
    else:
        style = page(color, to_file=output not in ("", "-"))
        write(prose.printed(tuple(passages), style), output)

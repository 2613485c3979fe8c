"""Tell who can take a problem, on this machine or any other; nothing is computed."""

from typing import Any

import click

from mlbackends_cli import exits
from mlbackends_cli.attention.options import (
    PEOPLE,
    backends_to_run,
    complete_backend,
    problem_options,
    wordings_of,
)
from mlbackends_cli.options import COLOR, OUTPUT


@click.command(
    "explain",
    epilog="""\b
Examples:
  backends sdpa explain --shape 2,8,1024,64
  backends sdpa explain --shape 2,8,1024,64 --dtype float16 --causal --device sm80,sm90,gfx942
  backends sdpa explain --shape 2,8,1024,200 --dtype float16 --backward --device sm86
  backends sdpa explain --shape 1,32,1,128 --kv-len 4096 --kv-heads 8 --gqa --format json
""",
)
@problem_options
@backends_to_run("Ask this one of ours alone; may be given again.")
@click.option(
    "--require",
    "required",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_backend,
    help="Exit 1 unless this one can take every problem.",
)
@click.option("--all", "details", is_flag=True, help="Tell all reasons, also for many problems.")
@PEOPLE
@OUTPUT
@COLOR
def command(
    names: tuple[str, ...],
    required: tuple[str, ...],
    details: bool,
    form: str,
    output: str,
    color: str,
    **words: Any,
) -> int:
    """Tell who can take a problem, on this machine or any other; nothing is computed.

    Told are all reasons of all backends, whom mlbackends would take, and whom torch would. DEVICE may be
    one that is not here: its rules are data. Switches of torch.backends hold as they are set in this
    environment. Exit 0 where one of ours can take every problem, else 1.
    """
    from mlbackends.sdpa import explaining
    from mlbackends_cli.output import indented, write
    from mlbackends_cli.terminal import page

    wordings = wordings_of(words)
    explaining.chosen_backends(required)
    asked = (*names, *required) if names else ()
    told = explaining.explain(wordings, asked)
    if form == "json":
        write(indented(told), output)
    else:
        from mlbackends_cli.attention import verdicts as sdpa_explained

        style = page(color, to_file=output not in ("", "-"), details=details)
        shown = sdpa_explained.printed(told, style) if form == "table" else ""
        write(shown or sdpa_explained.markdown(told), output)
    able = all(
        each.answered and not {name for name in required if not _can(each.verdicts, name)}
        for each in told.problems
    )
    return exits.YES if able else exits.NO


def _can(verdicts: Any, name: str) -> bool:
    return any(each.backend == name and each.usable for each in verdicts)

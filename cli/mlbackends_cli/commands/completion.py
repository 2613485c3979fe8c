"""Print the completion script of a shell.

It completes commands, options, names of probes and the dotted names of --get. An installed backends
has the scripts under share/, where shells look for them.

Examples:
  eval "$(backends completion bash)"                                    # in ~/.bashrc
  backends completion zsh > ~/.zfunc/_backends                          # with ~/.zfunc in fpath
  backends completion fish > ~/.config/fish/completions/backends.fish
"""

import click
from click.shell_completion import get_completion_class

from mlbackends_cli.lazy import documented
from mlbackends_cli.output import write

SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """Return the completion script of bash, zsh or fish, as click's templates have it."""
    kind = get_completion_class(shell)
    assert kind is not None
    # Only the template is wanted: bash's own `source()` would first ask the bash that is installed.
    completion = kind(click.Command("backends"), {}, "backends", "_BACKENDS_COMPLETE")
    return kind.source_template % completion.source_vars() + "\n"


@documented()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    write(script(shell))

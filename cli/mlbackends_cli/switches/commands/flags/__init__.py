"""Show the switches of torch.backends: their values, where these come from, and what reads them.

A switch has the same name here, in files and for `backends run`, which carries switches into a program
that uses torch. In Python it is the same below mlbackends as below torch.backends: an attribute
(cudnn.benchmark), a function (cuda.enable_flash_sdp()), an argument of set_flags() and flags() (nnpack),
or nothing, if a library reads a variable when it is loaded (mkl.num_threads). `backends explain
NAME` shows which.

A switch starts from its environment variable, else from the file that MLBACKENDS_FLAGS names, else
from its default.

Examples:
  backends flags list                     every switch
  backends flags list cudnn --changed     those of cuDNN that differ from their default
  backends flags get cuda.matmul.allow_tf32
  backends flags env --flags run.toml     the variables with the same effect
  backends flags check run.toml
"""

import warnings
from typing import TYPE_CHECKING

import click

from mlbackends.inject import requested
from mlbackends.switches import store
from mlbackends.switches.cells import refuse_contradictions
from mlbackends.switches.files import settings as settings_of
from mlbackends.switches.table import SWITCHES
from mlbackends_cli.lazy import FolderGroup
from mlbackends_cli.options import completing, together
from mlbackends_cli.output import log

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

command = FolderGroup(__name__, name="flags")


#: Completes the name of a switch.
complete = completing(lambda: SWITCHES)


def complete_setting(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Complete a switch's name, and behind the = its values."""
    from click.shell_completion import CompletionItem

    del ctx, param
    name, sign, _ = incomplete.partition("=")
    completions = {
        f"{switch.name}=": switch.doc for switch in SWITCHES.values() if not switch.read_only
    }
    if sign:
        kind = SWITCHES[name].kind if name in SWITCHES else None
        words = () if getattr(kind, "name", "") == "order" else getattr(kind, "words", ())
        words = ("true", "false") if getattr(kind, "name", "") == "bool" else words
        completions = {f"{name}={word}": "" for word in words}
    return [
        CompletionItem(text, help=about)
        for text, about in completions.items()
        if text.startswith(incomplete)
    ]


#: The options for the values of switches; for `apply`.
with_values = together(
    click.option(
        "--flags",
        "files",
        metavar="FILE.toml",
        multiple=True,
        help="Apply the switches of this file first (repeatable).",
    ),
    click.option(
        "--set",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        shell_complete=complete_setting,
        help="Assume that NAME is set to VALUE (repeatable).",
    ),
)


def environment_problems() -> list[str]:
    """Return what is wrong with the variables of this environment, a sentence each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return store.problems()


def apply(files: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Apply the switches of files and options; print a line for each invalid variable."""
    for problem in environment_problems():
        log(problem)
    if files or settings:
        refuse_contradictions(requested(settings, files))  # as `backends run` does
        for path in files:
            store.load_file(path)
        store.assume(settings_of(settings))

"""Options that the commands of `backends sdpa` share: the words of a problem, backends, and a time limit."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mlbackends.model.errors import BadInput
from mlbackends.sdpa import named_devices, problem_text
from mlbackends.sdpa.problem_text import WORDS, Wording
from mlbackends_cli.options import Seconds, format_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = Callable[..., Any]
_VALUES = {
    "device": named_devices.NAMES,
    "dtype": ("float32", "bfloat16", "float16", "float64"),
    "mask": problem_text.MASKS,
    "layout": problem_text.LAYOUTS,
}


def problem_options(command: Command) -> Command:
    """Give a command the words of a problem, and --problems; `wordings_of` reads them."""
    command = click.option(
        "--problems",
        metavar="FILE",
        multiple=True,
        help="The problems of a file, one a line in the words of these options, - for standard"
        " input; options that are given hold where a line says nothing.",
    )(command)
    for name, word in reversed(WORDS.items()):
        if word.flag:
            command = click.option(f"--{name}", is_flag=True, help=word.help)(command)
        else:
            command = click.option(
                f"--{name}",
                metavar=word.metavar,
                multiple=True,
                help=word.help,
                shell_complete=_completing(_VALUES[name]) if name in _VALUES else None,
            )(command)
    return command


def wordings_of(given: dict[str, Any]) -> tuple[Wording, ...]:
    """Return the problems of the options, and take these out of what was given; the rest is a Plan.

    Raises BadInput, UnknownName or InvalidProblem.
    """
    files = given.pop("problems")
    words: dict[str, list[str]] = {}
    for name, word in WORDS.items():
        value = given.pop(name.replace("-", "_"))
        texts = ([""] if value else []) if word.flag else list(value)
        if texts:
            words[name] = texts
    if not files:
        return problem_text.wordings(words)
    usual = {name: texts for name, texts in words.items() if name != "shape"}
    from mlbackends.sdpa import problem_file

    found = list(problem_text.wordings(words)) if "shape" in words else []
    for path in files:
        found += problem_file.read_file(path, usual)
    unique = tuple(dict.fromkeys(found))
    if not unique:
        raise BadInput("no problem is given")
    return unique


def _completing(values: tuple[str, ...]) -> Any:
    """Return what completes the last member of a list."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        del ctx, param
        from click.shell_completion import CompletionItem

        before, comma, last = incomplete.rpartition(",")
        names = [each for each in values if each.startswith(last)]
        return [CompletionItem(f"{before}{comma}{each}") for each in names]

    return complete


def complete_backend(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Complete the name of an attention backend."""
    del ctx, param
    from click.shell_completion import CompletionItem

    from mlbackends.sdpa.dispatch import backends

    names = [each.name for each in backends()]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def backend_option(help_text: str, *names: str) -> Callable[[Command], Command]:
    """Return an option that takes backends, --backend by default, and may be given again."""
    return click.option(
        *(names or ("--backend", "names")),
        metavar="NAME",
        multiple=True,
        shell_complete=complete_backend,
        help=help_text,
    )


PYTHON = click.option(
    "--python",
    metavar="EXE",
    default="",
    help="Look for peers in another Python environment, by its interpreter.",
)
FORMAT = format_option(also=("table", "markdown"))


def time_limit(seconds: float) -> Callable[[Command], Command]:
    """Return --timeout, with its default."""
    return click.option(
        "--timeout",
        type=Seconds(min=0.01, max=86400),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="How long a backend may take for one answer before it is stopped.",
    )

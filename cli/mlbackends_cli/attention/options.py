"""What the commands below `backends sdpa` have in common: the words of a problem as options."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mlbackends.model.errors import BadInput
from mlbackends.sdpa import named_devices, problem_text
from mlbackends.sdpa.problem_text import WORDS, Wording
from mlbackends_cli.options import Seconds

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = Callable[..., Any]
_PROBLEMS = "problems"


def problem_options(command: Command) -> Command:
    """Give a command the words of a problem, and --problems; `wordings_of` reads them."""
    options = [_option(name) for name in WORDS]
    options.append(
        click.option(
            "--problems",
            _PROBLEMS,
            metavar="FILE",
            multiple=True,
            help="The problems of a file, one a line in the words of these options, - for standard"
            " input; options that are given hold where a line says nothing.",
        )
    )
    for option in reversed(options):
        command = option(command)
    return command


def wordings_of(given: dict[str, Any]) -> tuple[Wording, ...]:
    """Return the problems that the options stand for, and take those out of what was given.

    Raises BadInput, UnknownName or InvalidProblem.
    """
    files = given.pop(_PROBLEMS)
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


def _option(name: str) -> Callable[[Command], Command]:
    word = WORDS[name]
    if word.flag:
        return click.option(f"--{name}", is_flag=True, help=word.help)
    return click.option(
        f"--{name}",
        metavar=word.metavar,
        multiple=True,
        help=word.help,
        shell_complete=_completing(_KNOWN.get(name, ())),
    )


_KNOWN = {
    "device": named_devices.NAMES,
    "dtype": ("float32", "bfloat16", "float16", "float64"),
    "mask": problem_text.MASKS,
    "layout": problem_text.LAYOUTS,
}


def _completing(known: tuple[str, ...]) -> Any:
    """Return what completes the last member of a list."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        del ctx, param
        from click.shell_completion import CompletionItem

        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{each}") for each in known if each.startswith(last)]

    return complete if known else None


PYTHON = click.option(
    "--python",
    metavar="EXE",
    default="",
    help="Look for peers in another Python environment, by its interpreter.",
)
PEOPLE = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="How to print it.",
)


def complete_backend(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Complete the name of an attention backend, or of a peer."""
    del ctx, param
    from click.shell_completion import CompletionItem

    from mlbackends.sdpa.dispatch import backends

    names = [each.name for each in backends()]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def backends_to_run(told: str) -> Callable[[Command], Command]:
    """Return --backend, which may be given again."""
    return click.option(
        "--backend",
        "names",
        metavar="NAME",
        multiple=True,
        shell_complete=complete_backend,
        help=told,
    )


def time_limit(seconds: float) -> Callable[[Command], Command]:
    """Return --timeout, whose default is so many seconds."""
    return click.option(
        "--timeout",
        type=Seconds(min=0.01, max=86400),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="How long a backend may take for one answer before it is stopped.",
    )

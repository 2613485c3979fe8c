"""Options that several commands share, and the report that they ask for."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from mlbackends.model.errors import BadInput
from mlbackends.model.records import Presence
from mlbackends_cli import formats
from mlbackends_cli.terminal import ProgressLine

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mlbackends.model.records import Report

Command = Callable[..., Any]


class Seconds(click.FloatRange):
    """A time limit: nan, which click finds in every range, is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; fails for what is none."""
        number = float(super().convert(value, param, ctx))
        if not number > 0:
            self.fail(f"{value} is no number of seconds", param, ctx)
        return number


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several options."""

    def decorated(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def completing(names: Callable[[], Iterable[str]]) -> Any:
    """Return a completion that offers the names which begin with what was typed."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        del ctx, param
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in names() if name.startswith(incomplete)]

    return complete


def format_option(
    *kinds: str, also: Iterable[str] = (), default: str = "table", about: str = "How to print it."
) -> Callable[[Command], Command]:
    """Return --format with every format that can print one of these kinds, see `formats`.

    also: words that the command prints itself.
    """
    choices = sorted({*formats.names(*kinds), *also})
    return click.option(
        "--format",
        "form",
        type=click.Choice(choices),
        default=default,
        show_default=True,
        help=about,
    )


def depth_option(default: str | None, about: str) -> Callable[[Command], Command]:
    """Return --depth."""
    return click.option(
        "--depth",
        type=click.Choice([each.value for each in Presence if each is not Presence.ABSENT]),
        default=default,
        show_default=default is not None,
        help=about,
    )


OUTPUT = click.option(
    "--output", metavar="FILE", default="", help="Write to FILE, whole or not at all; - is stdout."
)
COLOR = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour; auto heeds NO_COLOR, FORCE_COLOR, CLICOLOR and the terminal.",
)
TIMEOUT = click.option(
    "--timeout",
    type=Seconds(min=0.01, max=3600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a library may take for each answer before it is stopped.",
)
PYTHON = click.option(
    "--python",
    metavar="EXE",
    default="",
    help="Look at the packages of another Python environment, by its interpreter.",
)
DEPTH = depth_option(
    Presence.USABLE.value,
    "How far to go on the live machine: found reads files only; loadable opens libraries,"
    " usable computes with them, in child processes.",
)
REDACT = click.option(
    "--redact/--no-redact",
    default=True,
    show_default=True,
    help="Replace host name, user, home folder, serial numbers and UUIDs.",
)


def read_report(
    subject: str,
    *,
    python: str = "",
    depth: str = Presence.USABLE.value,
    timeout: float = 5.0,
    redact: bool = True,
    names: tuple[str, ...] = (),
) -> "Report":
    """Return the report of a saved one, a recorded machine or, by "-", the live one.

    names: the probes that are needed, all by default. Raises BadInput.
    """
    from mlbackends.audit.reports import LIVE, report_of

    if python and subject != LIVE:
        raise BadInput("--python looks at the live machine; it goes with no FILE or DIR")
    with ProgressLine() as progress:
        return report_of(
            subject,
            python=python,
            depth=Presence(depth),
            timeout=timeout,
            redact=redact,
            names=names,
            progress=progress,
        )

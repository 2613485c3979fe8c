"""Options that several commands share."""

from typing import Any

import click

from mlbackends.model.records import Presence


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
DEPTH = click.option(
    "--depth",
    type=click.Choice([each.value for each in Presence if each is not Presence.ABSENT]),
    default=Presence.USABLE.value,
    show_default=True,
    help="How far to go on the live machine: found reads files only; loadable opens libraries,"
    " usable computes with them, in child processes.",
)
REDACT = click.option(
    "--redact/--no-redact",
    default=True,
    show_default=True,
    help="Replace host name, user, home folder, serial numbers and UUIDs.",
)

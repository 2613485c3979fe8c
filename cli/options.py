"""Options that several commands share."""

import click

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

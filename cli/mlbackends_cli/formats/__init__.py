"""How records are printed: one file per format, whose name is the value of --format.

A format of one record alone, such as Slurm's features of a report, is in the file of its command or subject.

A format has one or more functions, named after the kind of record that they print. Each takes the record
and a `Page`, and returns text:

record   any record; a format that has it serves every command that has --format
report   what `backends info` found
outcome  checks: of `audit`, `doctor`, `diff` and `sdpa check`
listing  a `Listing`: rows of cells for people
rows     a list of records

With FOR_COLLECTORS = True its outcomes have the fingerprints of what they judge, and every user may read its
files, whatever the umask is: a collector is another one.

It may also have `publish(outcome)`, which is called after an outcome has been written, for output that
belongs elsewhere, such as the summary of a GitHub step.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from mlbackends.base import registry
from mlbackends_cli import terminal
from mlbackends_cli.output import write


def names(*kinds: str) -> tuple[str, ...]:
    """Return the formats that can print one of these kinds."""
    return tuple(name for name in registry.names(__name__) if has(name, "record", *kinds))


def has(form: str, *kinds: str) -> bool:
    """Return whether a word is a format with a function for one of these kinds."""
    if form not in registry.names(__name__):
        return False
    module = load(form)
    return any(callable(getattr(module, kind, None)) for kind in kinds)


def load(form: str) -> ModuleType:
    """Import a format."""
    return registry.load(__name__, form)


def is_for_collectors(form: str) -> bool:
    """Return whether another user's program collects what is written in a format."""
    return bool(getattr(load(form), "FOR_COLLECTORS", False))


def text(form: str, kind: str, value: Any, page: Any) -> str:
    """Return a record as text, by the format's function for its kind, else by the one for any record."""
    module = load(form)
    printed: str = getattr(module, kind if hasattr(module, kind) else "record")(value, page)
    return printed


def text_of(form: str, record: Any, page: Any, **own: Callable[[Any, Any], str]) -> str:
    """Return a record as text, by what a command has for this format, else by the format itself."""
    return own[form](record, page) if form in own else text(form, "record", record, page)


def show(
    record: Any,
    own: Mapping[str, Callable[..., str]],
    *,
    form: str,
    output: str,
    color: str,
    details: bool = False,
) -> None:
    """Write a record as `text_of` returns it. form, output, color: the values of these options."""
    write(text_of(form, record, terminal.page(color, output, details=details), **own), output)

"""Options that several commands share, and the report that these describe."""

import os
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import click
from click.core import ParameterSource

from mlbackends.base.errors import BadInput, shown
from mlbackends.base.mounts import mount_of
from mlbackends.base.tables import table
from mlbackends.model.records import Presence, Report
from mlbackends_cli import formats
from mlbackends_cli.terminal import ProgressLine

_TEXTS: dict[str, str] = table(os.path.join(os.path.dirname(__file__), "options"))

Command = Callable[..., Any]
Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def option(
    spec: str,
    about: str,
    *,
    usual: Any = None,
    kind: Any = None,
    one_of: Iterable[str] = (),
    many: bool = False,
    **more: Any,
) -> Callable[[Command], Command]:
    """Return an option; one without a metavar or a kind of value is a flag.

    spec: its names, that of the parameter if it is another, and a metavar: "--policy policies FILE".
    about: the help, or its name in options.json. usual: the default, which the help shows. many: the option
    is repeatable.
    """
    words = spec.split()
    names = [word for word in words if word[0] == "-" or (word.isidentifier() and word.islower())]
    if values := words[len(names) :]:
        more["metavar"] = values[0]
    if choices := [*one_of]:
        kind = click.Choice(choices)
    elif not (values or kind or "/" in spec):
        more["is_flag"] = True
    if not more.get("is_flag"):
        if "flag_value" not in more:  # with which it has a value where none is typed
            more.setdefault("callback", _not_empty)
        more |= {"default": usual, "type": kind, "multiple": many, "show_default": bool(usual)}
    return click.option(*names, help=_TEXTS.get(about, about), **more)


def _not_empty(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return a value; refuses an empty one, which is most often a variable that is not set."""
    is_typed = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
    if is_typed and "" in (value if isinstance(value, tuple) else (value,)):
        raise BadInput(f"{param.opts[0]} has an empty value", "name one, or leave the option out")
    return value


class Seconds(click.FloatRange):
    """A time limit; rejects nan, which click accepts in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fails for text that is not a number of seconds."""
        number = float(super().convert(value, param, ctx))
        if not number > 0:
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return number


class TypedPath(click.Path):
    """A path that is completed but not checked: click itself would wait for a dead mount."""

    def convert(self, value: Any, *_: object) -> Any:
        """Return what was typed."""
        return value


class _Format(click.Choice):  # type: ignore[type-arg]
    """A choice among formats, which are imported only if another than the default is named."""

    def __init__(self, kinds: tuple[str, ...], also: Iterable[str], usual: str) -> None:
        self.case_sensitive = True
        self._kinds, self._also, self._usual = kinds, also, usual

    @cached_property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return every format that can print one of the kinds, and the command's own words."""
        return tuple(sorted({*formats.names(*self._kinds), *self._also}))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word; fails for an unknown one."""
        if value in (self._usual, *self._also) or formats.has(value, "record", *self._kinds):
            return value
        return super().convert(value, param, ctx)


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several options."""

    def decorated(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def completing(names: Callable[[], Iterable[str]], *, in_list: bool = False) -> Completion:
    """Return a completion by names with the typed beginning; in a list, of its last member."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        del ctx, param
        before, comma, last = incomplete.rpartition(",") if in_list else ("", "", incomplete)
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return complete


def format_option(
    *kinds: str, also: Iterable[str] = (), default: str = "table", about: str = "Output format."
) -> Callable[[Command], Command]:
    """Return --format with every format that can print one of these kinds, see `formats`.

    also: words that the command prints itself.
    """
    return option("--format form", about, usual=default, kind=_Format(kinds, also, default))


def depth_option(default: str | None, otherwise: str = "") -> Callable[[Command], Command]:
    """Return --depth. otherwise: the default in words, where it depends on something."""
    depths = [presence.value for presence in Presence if presence is not Presence.ABSENT]
    about = (
        "How far to go on a live machine: found reads files only; loadable opens libraries,"
        " usable computes with them, in child processes."
    )
    about += f"  [default: {otherwise}]" if otherwise else ""
    return option("--depth", about, usual=default, one_of=depths)


def timeout_option(seconds: float, about: str = "", most: float = 3600) -> Callable[[Command], Command]:
    """Return --timeout, with its default."""
    return option(
        "--timeout SECONDS",
        about
        or "Time limit for each answer of a library before it is stopped, and for a network mount"
        " or FUSE before it is skipped.",
        usual=seconds,
        kind=Seconds(min=0.01, max=most),
    )


def root_option(about: str = "") -> Callable[[Command], Command]:
    """Return --root, whose value is a folder or an archive."""

    def checked(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
        del ctx, param
        # A path on a network mount is checked later, under --timeout.
        if path is not None and not (mount_of(path) or os.path.isdir(path) or os.path.isfile(path)):
            try:
                os.stat(path)
            except PermissionError:
                raise BadInput(f"--root: {shown(path)} cannot be read: Permission denied") from None
            except (OSError, ValueError):
                pass
            hint = "give a folder that contains proc/ and sys/, or what `backends snapshot` wrote"
            raise BadInput(f"--root: {shown(path)} is neither a folder nor a file", hint)
        return path

    return option(
        "--root PATH",
        about
        or "Inspect a recorded machine: what backends snapshot wrote, a folder with /proc, /sys"
        " and so on, or a tar of one.",
        kind=TypedPath(),
        callback=checked,
    )


OUTPUT = option("--output FILE", "Write to FILE, completely or not at all; - is stdout.", usual="")
COLOR = option("--color", "color", usual="auto", one_of=["auto", "always", "never"])
TIMEOUT = timeout_option(5.0)
PYTHON = option("--python EXE", "python", usual="")
DEPTH = depth_option(Presence.USABLE.value)
PID = option("--pid", "Inspect a running process: what it has loaded.", kind=click.IntRange(min=1))
REDACT = option("--redact/--no-redact", "redact", usual=True)


def written(*kinds: str, **how: Any) -> Callable[[Command], Command]:
    """Return --format, with what `format_option` takes, --output and --color."""
    return together(format_option(*kinds, **how), OUTPUT, COLOR)


def typed() -> dict[str, str]:
    """Return the parameters of the current command that were typed, each with the name of its option."""
    context = click.get_current_context()
    return {
        name: param.opts[0]
        for param in context.command.params
        if context.get_parameter_source(name := param.name or "") is ParameterSource.COMMANDLINE
    }


#: Versions to assume; `versions_of` of attention's options reads them.
VERSIONS = together(
    option(
        "--torch VERSION[,VERSION]",
        "Ask as with these releases of torch, not the installed one: 2.13, or 2.5..2.15 for all of them.",
    ),
    option("--cudnn VERSION", "Ask as with this cuDNN.  [default: of torch's wheels]"),
    option("--cuda VERSION", "Ask as with a torch built for this CUDA.  [default: of torch's wheels]"),
    option("--rocm VERSION", "Ask as with this ROCm, for reports of wrong numbers."),
    option("--driver VERSION", "Ask as with this driver: whether torch runs, and reports of wrong numbers."),
)


def read_report(
    subject: str,
    *,
    python: str = "",
    pid: int | None = None,
    depth: str = Presence.USABLE.value,
    timeout: float = 5.0,
    redact: bool = True,
    names: tuple[str, ...] = (),
) -> Report:
    """Return the report of a file, of a recorded machine or, for "-", of the live machine.

    names: the probes to run, all by default. Raises BadInput.
    """
    from mlbackends.audit.reports import LIVE, report_of

    for option, value in (("--python", python), ("--pid", pid)):
        if value and subject != LIVE:
            message = f"{option} inspects the live machine; it cannot be combined with FILE or DIR"
            raise BadInput(message, "leave one of them out")
    with ProgressLine() as progress:
        return report_of(
            subject,
            python=python,
            pid=pid,
            depth=Presence(depth),
            timeout=timeout,
            redact=redact,
            names=names,
            progress=progress,
        )

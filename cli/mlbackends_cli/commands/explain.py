"""Explain a device, a hazard, a switch, a reason code, or where mlbackends and torch differ."""

from typing import TYPE_CHECKING

import click

from mlbackends_cli.options import COLOR, OUTPUT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mlbackends.model.device_kinds import KindPage
    from mlbackends_cli.prose import Passage

_DEVICE = "device"
_LIVE = "-"


def _complete(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    del param
    from click.shell_completion import CompletionItem

    from mlbackends.audit import device_limits
    from mlbackends_cli import topics

    words = ctx.params.get("topics") or ()
    names = device_limits.kinds() if _DEVICE in words else topics.names()
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command(
    epilog="""\b
Examples:
  backends explain                       what can be explained
  backends explain deviations            where mlbackends and torch.backends differ, and why
  backends explain openmp-two-runtimes   what a finding of `backends doctor` means
  backends explain cudnn.benchmark       one switch
  backends explain cuda.matmul           every switch of a group
  backends explain dlopen-failed         one reason code
  backends explain device                which kinds of devices there are
  backends explain device mps            what MPS cannot do, and which of it applies here
  backends explain device cuda --report node7.json
"""
)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=_complete)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="How to print it; json is for devices.",
)
@click.option(
    "--report",
    "--root",
    "subject",
    metavar="FILE|DIR|-",
    help="For devices: the saved report or recorded machine to hold them to; - is the live one."
    "  [default: -]",
)
@OUTPUT
@COLOR
def command(
    topics: tuple[str, ...], form: str, subject: str | None, output: str, color: str
) -> None:
    """Explain a device, a hazard, a switch, a reason code, or where mlbackends and torch differ.

    TOPIC is the name of a switch or of a group of them, a code from what `backends doctor` finds or from
    the reasons of a report, the code of a deviation, or hazards or deviations for all of those. Behind
    the word device come kinds of devices, such as cuda or mps: what each cannot do and may offer, beside
    what was found here. Without TOPIC: all that there is.
    """
    from mlbackends_cli import prose
    from mlbackends_cli import topics as known
    from mlbackends_cli.output import write
    from mlbackends_cli.terminal import page

    at = topics.index(_DEVICE) if _DEVICE in topics else len(topics)
    before, kinds = topics[:at], topics[at + 1 :]
    if subject is not None and not kinds:
        raise click.UsageError("--report goes with kinds of devices: backends explain device KIND")
    if form == "json":
        if before or at == len(topics):
            raise click.UsageError("--format json is for devices: backends explain device KIND")
        write(_json(kinds, subject), output)
        return
    passages: list[Passage] = []
    for topic in before or (() if at < len(topics) else ("",)):
        passages += known.explained(topic)
    if at < len(topics) and not kinds:
        passages += known.explained(_DEVICE)
    pages = _pages(kinds, subject) if kinds else []
    if form == "markdown":
        from mlbackends_cli import device_pages

        parts = [prose.markdown(tuple(passages))] if passages else []
        write("\n".join([*parts, *(device_pages.markdown(each) for each in pages)]), output)
        return
    if pages:
        from mlbackends_cli import device_pages

        passages += [passage for each in pages for passage in device_pages.passages(each)]
    style = page(color, to_file=output not in ("", "-"))
    write(prose.printed(tuple(passages), style), output)


def _pages(kinds: tuple[str, ...], subject: str | None) -> "list[KindPage]":
    """Look at the machine with the probes that tell of these kinds, and return their pages."""
    from mlbackends.audit import device_limits
    from mlbackends.audit.reports import report_of
    from mlbackends_cli.terminal import ProgressLine

    probes = dict.fromkeys(probe for kind in kinds for probe in device_limits.load(kind).probes)
    with ProgressLine() as progress:
        report = report_of(subject or _LIVE, names=tuple(probes), progress=progress)
    return [device_limits.page_of(kind, report) for kind in kinds]


def _json(kinds: tuple[str, ...], subject: str | None) -> str:
    """Return the pages of kinds as JSON; of no kind, those of all, and no machine is looked at."""
    from mlbackends import __version__
    from mlbackends.audit import device_limits
    from mlbackends.model.device_kinds import SCHEMA, KindPages
    from mlbackends_cli.output import indented

    if kinds:
        pages = _pages(kinds, subject)
    else:
        pages = [device_limits.page_of(kind) for kind in device_limits.kinds()]
    record = KindPages(SCHEMA, f"backends {__version__}", tuple(pages))
    return indented(record)

"""Explain a device, a hazard, a switch, a reason code, or where mlbackends and torch differ."""

from typing import TYPE_CHECKING

import click

from mlbackends.audit import device_limits, hazard
from mlbackends.model import registry
from mlbackends.model.device_kinds import SCHEMA, KindPages
from mlbackends.model.errors import UnknownName
from mlbackends.switches import listing
from mlbackends.switches.deviations import DEVIATIONS, Deviation
from mlbackends.switches.files import as_data, groups, members
from mlbackends.switches.listing import read_by, set_by
from mlbackends.switches.table import FLAGS, NOT_IN_FLAGS, PROBED, Flag
from mlbackends_cli import device_pages, formats
from mlbackends_cli.options import COLOR, OUTPUT, format_option, read_report
from mlbackends_cli.output import write
from mlbackends_cli.terminal import page
from mlbackends_cli.text import prose
from mlbackends_cli.text.prose import Passage

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mlbackends.model.device_kinds import KindPage

_DEVICE, _DEVIATIONS, _HAZARDS = "device", "deviations", "hazards"


def _complete(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    del param
    from click.shell_completion import CompletionItem

    names = device_limits.kinds() if _DEVICE in (ctx.params.get("topics") or ()) else topics()
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
@format_option(
    also=("text", "markdown"), default="text", about="How to print it; json is for devices."
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
    asks_devices = _DEVICE in topics
    at = topics.index(_DEVICE) if asks_devices else len(topics)
    before, kinds = topics[:at], topics[at + 1 :]
    style = page(color, output)
    if subject is not None and not kinds:
        raise click.UsageError("--report goes with kinds of devices: backends explain device KIND")
    if form not in ("text", "markdown"):
        if before or not asks_devices:
            raise click.UsageError(f"--format {form} is for devices: backends explain device KIND")
        from mlbackends import __version__

        pages = _pages(kinds, subject) or [
            device_limits.page_of(kind) for kind in device_limits.kinds()
        ]
        record = KindPages(SCHEMA, f"backends {__version__}", tuple(pages))
        write(formats.text(form, "record", record, style), output)
        return
    passages: list[Passage] = []
    for topic in before or (() if asks_devices else ("",)):
        passages += explained(topic)
    if asks_devices and not kinds:
        passages += explained(_DEVICE)
    pages = _pages(kinds, subject)
    if form == "markdown":
        parts = [prose.markdown(passages)] if passages else []
        write("\n".join([*parts, *map(device_pages.markdown, pages)]), output)
        return
    passages += [passage for each in pages for passage in device_pages.passages(each)]
    write(prose.printed(passages, style), output)


def _pages(kinds: tuple[str, ...], subject: str | None) -> "list[KindPage]":
    """Look at the machine with the probes that know these kinds, and return their pages."""
    if not kinds:
        return []
    probes = dict.fromkeys(probe for kind in kinds for probe in device_limits.load(kind).probes)
    report = read_report(subject or "-", names=tuple(probes))
    return [device_limits.page_of(kind, report) for kind in kinds]


def topics() -> list[str]:
    """Return every topic."""
    return [
        _DEVICE,
        _DEVIATIONS,
        *(each.code for each in DEVIATIONS),
        _HAZARDS,
        *hazard.codes(),
        *groups(),
        *FLAGS,
        *_codes(),
    ]


def explained(topic: str) -> list[Passage]:
    """Return the passages of a topic: of a group every switch; of "", which topics there are.

    Raises UnknownName, with the nearest topic.
    """
    if not topic:
        return _overview()
    if topic == _DEVICE:
        return [device_pages.overview()]
    if topic == _DEVIATIONS:
        return [deviation(each) for each in DEVIATIONS]
    if topic == _HAZARDS:
        return [_hazard(code) for code in hazard.codes()]
    found = [deviation(each) for each in DEVIATIONS if each.code == topic]
    if topic in hazard.codes():
        found.append(_hazard(topic))
    if topic in FLAGS:
        found.append(switch(FLAGS[topic]))
    found += [switch(FLAGS[name]) for name in members(topic)]
    if topic in _codes():
        found.append(Passage(topic, (("", _codes()[topic]),)))
    if not found:
        raise UnknownName("topic", topic, tuple(topics()), "backends explain")
    return found


def _overview() -> list[Passage]:
    modules: dict[str, list[str]] = {}
    for flag in FLAGS.values():
        modules.setdefault(flag.module or "mlbackends", []).append(flag.name)
    differences = [(each.code, ", ".join(each.names)) for each in DEVIATIONS]
    switches = [(module, ", ".join(names)) for module, names in modules.items()]
    hazards = [(code, hazard.title(hazard.load(code))) for code in hazard.codes()]
    return [
        Passage(
            "Where mlbackends and torch.backends differ",
            ((_DEVIATIONS, "all of them"), *differences),
        ),
        Passage("Switches", tuple(switches)),
        Passage("Hazards that backends doctor knows", tuple(hazards)),
        device_pages.overview(),
        Passage("Reason codes", tuple(sorted(_codes().items()))),
    ]


def _codes() -> dict[str, str]:
    from mlbackends.survey import all_codes

    return all_codes()


def deviation(each: Deviation) -> Passage:
    """Return one difference from torch."""
    where = ", ".join(each.names) if "*" not in each.names else "every module"
    lines = (
        ("where", where),
        ("torch 2.13", each.torch),
        ("mlbackends", each.ours),
        ("why", each.why),
    )
    return Passage(each.code, lines)


def _hazard(code: str) -> Passage:
    """Return one hazard: what it is, why it hurts, what to do, what it reads, and who met it."""
    file = hazard.load(code)
    if error := registry.import_error(file):
        return Passage(code, (("", f"It cannot be imported: {type(error).__name__}: {error}."),))
    lines = [
        ("", hazard.title(file) + "."),
        ("severity", str(file.SEVERITY)),
        ("why", file.WHY),
        ("do", file.MEND),
        *hazard.sections(file),
        ("reads", ", ".join(file.READS) or "every probe"),
        ("met in", ", ".join(file.SOURCES)),
    ]
    return Passage(code, tuple(lines))


def switch(flag: Flag) -> Passage:
    """Return one switch: what it does, takes and starts with, and who reads it."""
    default = "by what is installed" if flag.default is PROBED else _value(flag, flag.default)
    lines = [
        ("", flag.doc),
        ("takes", listing.accepts(flag) or "nothing: it is an answer, not a setting"),
        ("default", default),
    ]
    if flag.inside_flags not in (NOT_IN_FLAGS, None):
        lines.append(("in flags()", f"{_value(flag, flag.inside_flags)} unless given"))
    if not flag.read_only:
        lines.append(("variable", ", ".join(flag.variables)))
    lines.append(("read by", ", ".join(flag.obeyed_by) or "nobody yet"))
    if flag.reached == "variable":
        in_python = "read when a library is loaded; nothing in Python changes it"
    else:
        sets, reads = set_by(flag), read_by(flag)
        in_python = f"{sets}; {reads} reads it" if sets not in ("", reads) else reads
    lines.append(("in Python", in_python))
    if concerned := [each.code for each in DEVIATIONS if flag.name in each.names]:
        lines.append(("see also", ", ".join(concerned)))
    return Passage(flag.name, tuple(lines))


def _value(flag: Flag, value: object) -> str:
    data = as_data(flag, value)
    if data is None:
        return "unset: the library chooses"
    parts = data if isinstance(data, list) else [data]
    return ", ".join(str(part).lower() if isinstance(part, bool) else str(part) for part in parts)

"""Explain a device, a hazard, a switch, a reason code, or a difference between mlbackends and torch.

TOPIC is the name of a switch or of a group of switches; a code from `backends doctor`, from
`backends trace show --view findings` or from the reasons in a report; the code of a deviation; or
switches, hazards, findings, reasons or deviations for all of those. After the word device, name
kinds of devices, such as cuda or mps: what each cannot do, what it may offer, and what this machine has.
Without TOPIC: a short index. Text that is longer than the terminal is shown by PAGER, or less.

Examples:
  backends explain                       what can be explained, by kind
  backends explain deviations            where mlbackends and torch.backends differ, and why
  backends explain openmp-two-runtimes   what a finding of `backends doctor` means
  backends explain cudnn.benchmark       one switch
  backends explain cuda.matmul           every switch of a group
  backends explain dlopen-failed         one reason code
  backends explain device                which kinds of devices there are
  backends explain device mps            what MPS cannot do, and what of that applies here
  backends explain device cuda --report node7.json
"""

from contextlib import suppress

import click

from mlbackends.audit import catalogue, device_limits
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.version import __version__
from mlbackends.model.device_kinds import SCHEMA, KindPages
from mlbackends.survey import all_codes
from mlbackends.switches.deviations import DEVIATIONS
from mlbackends.switches.files import groups
from mlbackends.switches.table import SWITCHES
from mlbackends.tracing.finder import Finder, finders
from mlbackends_cli import formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, format_option, read_report
from mlbackends_cli.output import write, write_paged
from mlbackends_cli.report.topics import (
    deviations,
    device_kinds,
    device_markdown,
    device_passages,
    switch_modules,
    switch_passages,
    switch_topics,
)
from mlbackends_cli.terminal import page
from mlbackends_cli.text import plain
from mlbackends_cli.text.plain import Passage

_DEVICE, _DEVIATIONS, _HAZARDS = "device", "deviations", "hazards"
_SWITCHES, _REASONS, _FINDINGS = "switches", "reasons", "findings"


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    del param
    names = [*device_limits.kinds()] if _DEVICE in (ctx.params.get("topics") or ()) else topics()
    return [name for name in names if name.startswith(incomplete)]


@documented()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=_complete)
@format_option(
    also=("text", "markdown"), default="text", about="Output format; json is for devices."
)
@click.option(
    "--report",
    "--root",
    "subject",
    metavar="FILE|DIR|-",
    help="For devices: compare with this saved report or recorded machine; - is the live one."
    "  [default: -]",
)
@OUTPUT
@COLOR
def command(
    topics: tuple[str, ...], form: str, subject: str | None, output: str, color: str
) -> None:
    at = topics.index(_DEVICE) if _DEVICE in topics else len(topics)
    before, kinds = topics[:at], tuple(map(_kind, topics[at + 1 :]))
    style = page(color, output)
    if subject is not None and not kinds:
        raise BadInput(
            "--report goes with kinds of devices", "write `backends explain device KIND`"
        )
    pages = []
    if kinds:  # look at the machine with the probes that know these kinds
        probes = dict.fromkeys(probe for kind in kinds for probe in device_limits.load(kind).probes)
        report = read_report(subject or "-", names=tuple(probes))
        pages = [device_limits.page_of(kind, report) for kind in kinds]
    if form not in ("text", "markdown"):
        if before or _DEVICE not in topics:
            hint = "write `backends explain device KIND`"
            raise BadInput(f"--format {form} is for devices", hint)

        pages = pages or [device_limits.page_of(kind) for kind in device_limits.kinds()]
        record = KindPages(SCHEMA, f"backends {__version__}", tuple(pages))
        write(formats.text(form, "record", record, style), output)
        return
    chapters = before or (() if _DEVICE in topics else ("",))
    if _DEVICE in topics and not kinds:
        chapters = (*chapters, _DEVICE)
    passages = [passage for topic in chapters for passage in explained(topic)]
    parts = [plain.passages_markdown(passages)] if passages else []
    if pages:
        parts += map(device_markdown, pages)
        passages += [passage for each in pages for passage in device_passages(each)]
    if form == "markdown":
        write("\n".join(parts), output)
    else:
        write_paged(plain.printed(passages, style), output)


def _kind(name: str) -> str:
    """Return the kind of a device that is named instead of its kind: cuda for h100."""
    from mlbackends.sdpa import named_devices

    if name in device_limits.kinds():
        return name
    with suppress(UnknownName):
        name = named_devices.canonical(name)
        return named_devices.NAMED[name].device.kind if name in named_devices.NAMED else name
    return name


def topics() -> list[str]:
    """Return every topic."""
    words = (_DEVICE, _DEVIATIONS, _FINDINGS, _HAZARDS, _REASONS, _SWITCHES)
    return [
        *words,
        *catalogue.codes(),
        *finders(),
        *switch_topics(),
        *all_codes(),
    ]


def explained(topic: str) -> list[Passage]:
    """Return the passages of a topic: of a group every switch; of "", the kinds of topics.

    Raises UnknownName, with the nearest topic.
    """
    if topic == _HAZARDS:
        return [_hazard(code) for code in catalogue.codes()]

    if topic == _DEVICE:
        return [device_kinds()]
    if topic == _DEVIATIONS:
        return deviations()

    if topic == _FINDINGS:
        titles = [(code, _title(finder)) for code, finder in finders().items()]
        return [Passage("Findings of a trace", tuple(titles))]
    if topic == _SWITCHES:
        return [switch_modules()]
    reasons = all_codes()
    if topic == _REASONS:
        return [Passage("Reason codes", tuple(sorted(reasons.items())))]
    if not topic:
        return [_index(tuple(sorted(reasons)))]
    found = [_hazard(topic)] if topic in catalogue.codes() else []
    if finder := finders().get(topic):
        lines = [("", _title(finder)), ("why", finder.WHY), ("do", finder.ACTION)]
        found.append(Passage(topic, tuple(line for line in lines if line[1])))
    found += switch_passages(topic)
    found += [Passage(topic, (("", reasons[topic]),))] if topic in reasons else []
    if not found:
        error = UnknownName("topic", topic, tuple(topics()), "backends explain")
        if topic in device_limits.kinds():
            error.hint = f"write `backends explain device {topic}`"
        elif not error.hint.startswith("did"):
            error.hint = "`backends explain` lists the kinds of topics"
        raise error
    return found


def _title(finder: type[Finder]) -> str:
    """Return the first paragraph of a finder's docstring."""
    return " ".join((finder.__doc__ or "").partition("\n\n")[0].split())


def _index(reasons: tuple[str, ...]) -> Passage:
    """Return the kinds of topics, each with how many there are, some of them, and what lists them."""
    deviations = tuple(each.code for each in DEVIATIONS)
    rows = (
        (_SWITCHES, f"{len(SWITCHES)} of torch.backends, in these groups", groups(), _SWITCHES),
        (
            _HAZARDS,
            f"{len(catalogue.codes())} codes of `backends doctor`",
            catalogue.codes(),
            _HAZARDS,
        ),
        (_FINDINGS, f"{len(finders())} codes of traces", tuple(finders()), _FINDINGS),
        (_REASONS, f"{len(reasons)} codes of what is not usable", reasons, _REASONS),
        (_DEVIATIONS, f"{len(deviations)} differences from torch", deviations, _DEVIATIONS),
        (_DEVICE, "kinds of devices, as `backends explain device cuda`", device_limits.kinds(), ""),
    )
    lines = [("", "`backends explain NAME` explains one of these:")]
    for kind, about, names, topic in rows:
        shown = names if kind in (_SWITCHES, _DEVICE) else (*names[:: len(names) // 3][:3], "...")
        hint = f"; all: `backends explain {topic}`" if topic else ""
        lines.append((kind, f"{about}: {', '.join(shown)}{hint}"))
    return Passage("What can be explained", tuple(lines))


def _hazard(code: str) -> Passage:
    """Return the page of one hazard."""
    hazard = catalogue.load(code)
    if error := hazard.error:
        return Passage(code, (("", f"It cannot be imported: {type(error).__name__}: {error}."),))
    affected = f"the {hazard.problem}"
    if hazard.in_container:
        affected += f"; in a container the {hazard.in_container}"
    lines = [
        ("", hazard.title + "."),
        ("severity", str(hazard.severity)),
        ("problem of", affected),
        ("why", hazard.why),
        ("do", hazard.fix),
        *hazard.sections,
        ("reads", ", ".join(hazard.reads) or "every probe"),
        ("met in", ", ".join(hazard.sources)),
    ]
    return Passage(code, tuple(lines))

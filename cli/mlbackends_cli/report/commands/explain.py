"""Explain a device, a hazard, a switch, a reason code, or a difference between mlbackends and torch.

TOPIC is the name of a switch or of a group of switches; a code from `backends doctor`, also with --from, from
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

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import click

from mlbackends.audit import catalogue, device_limits
from mlbackends.audit.messages import diagnose, messages
from mlbackends.audit.paste import of_text
from mlbackends.base import registry
from mlbackends.base.errors import BadInput, UnknownName, counted
from mlbackends.base.version import __version__
from mlbackends.model.device_kinds import SCHEMA, Concern, Here, KindPage, KindPages
from mlbackends.sdpa import named_devices
from mlbackends.survey import all_codes
from mlbackends.switches import listing
from mlbackends.switches.deviations import DEVIATIONS, Deviation
from mlbackends.switches.files import as_data, groups, members
from mlbackends.switches.listing import read_by, set_by
from mlbackends.switches.table import NOT_IN_FLAGS, PROBED, SWITCHES, Switch
from mlbackends.tracing.finder import Finder, finders
from mlbackends_cli import formats
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import COLOR, OUTPUT, format_option, option, read_report
from mlbackends_cli.output import write, write_paged
from mlbackends_cli.terminal import page
from mlbackends_cli.text import plain
from mlbackends_cli.text.markdown import literal, table
from mlbackends_cli.text.plain import Passage, amount, one_line, setting, shortened

_DEVICE, _DEVIATIONS, _HAZARDS = "device", "deviations", "hazards"
_SWITCHES, _REASONS, _FINDINGS = "switches", "reasons", "findings"


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    del param
    names = [*device_limits.kinds()] if _DEVICE in (ctx.params.get("topics") or ()) else topics()
    return [name for name in names if name.startswith(incomplete)]


@documented()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=_complete)
@format_option(also=("text", "markdown"), default="text", about="Output format; json is for devices.")
@option("--report --root subject FILE|DIR|-", "report")
@OUTPUT
@COLOR
def command(topics: tuple[str, ...], form: str, subject: str | None, output: str, color: str) -> None:
    at = topics.index(_DEVICE) if _DEVICE in topics else len(topics)
    before, kinds = topics[:at], tuple(map(_kind, topics[at + 1 :]))
    style = page(color, output)
    if subject is not None and not kinds:
        raise BadInput("--report goes with kinds of devices", "write `backends explain device KIND`")
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
        passages += [passage for device_page in pages for passage in device_passages(device_page)]
    if form == "markdown":
        write("\n".join(parts), output)
    else:
        write_paged(plain.printed(passages, style), output)


def _kind(name: str) -> str:
    """Return the kind of a device that is named instead of its kind: cuda for h100."""
    if name in device_limits.kinds():
        return name
    with suppress(UnknownName):
        name = named_devices.canonical(name)
        return named_devices.NAMED[name].device.kind if name in named_devices.NAMED else name
    return name


def topics() -> list[str]:
    """Return every topic."""
    words = (_DEVICE, _DEVIATIONS, _FINDINGS, _HAZARDS, _REASONS, _SWITCHES)
    of_switches = (*(row.code for row in DEVIATIONS), *groups(), *SWITCHES)
    return [*words, *catalogue.codes(), *messages(), *finders(), *of_switches, *all_codes()]


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
        modules: dict[str, list[str]] = {}
        for named in SWITCHES.values():
            modules.setdefault(named.module or "mlbackends", []).append(named.name)
        return [Passage("Switches", tuple((word, ", ".join(names)) for word, names in modules.items()))]
    reasons = all_codes()
    if topic == _REASONS:
        return [Passage("Reason codes", tuple(sorted(reasons.items())))]
    if not topic:
        return [_index(tuple(sorted(reasons)))]
    found = [_hazard(topic)] if topic in catalogue.codes() else []
    found += [_message(topic)] if topic in messages() else []
    if finder := finders().get(topic):
        lines = [("", _title(finder)), ("why", finder.WHY), ("do", finder.ACTION)]
        found.append(Passage(topic, tuple(line for line in lines if line[1])))
    found += [deviation(row) for row in DEVIATIONS if row.code == topic]
    names = [topic] if topic in SWITCHES else []
    found += [switch(SWITCHES[name]) for name in (*names, *members(topic))]
    found += [Passage(topic, (("", reasons[topic]),))] if topic in reasons else []
    if not found:
        error = UnknownName("topic", topic, tuple(topics()), "backends explain")
        if topic in device_limits.kinds():
            error.hint = f"write `backends explain device {topic}`"
        elif option := named_devices.option_for(topic):
            error.hint = f"did you mean `backends sdpa explain {option}`?"
        elif topic in registry.names("mlbackends_probes"):
            error.hint = f"did you mean `backends info {topic}`?"
        elif not error.hint.startswith("did"):
            error.hint = "`backends explain` lists the kinds of topics"
        raise error
    return found


def _title(finder: type[Finder]) -> str:
    """Return the first paragraph of a finder's docstring."""
    return " ".join((finder.__doc__ or "").partition("\n\n")[0].split())


def _index(reasons: tuple[str, ...]) -> Passage:
    """Return the kinds of topics, each with how many there are, some of them, and what lists them."""
    deviations = tuple(row.code for row in DEVIATIONS)
    rows = (
        (_SWITCHES, f"{len(SWITCHES)} of torch.backends, in these groups", groups(), _SWITCHES),
        (_HAZARDS, f"{len(catalogue.codes())} codes of `backends doctor`", catalogue.codes(), _HAZARDS),
        (_FINDINGS, f"{len(finders())} codes of traces", tuple(finders()), _FINDINGS),
        (_REASONS, f"{len(reasons)} codes of what is not usable", reasons, _REASONS),
        (_DEVIATIONS, f"{len(deviations)} differences from torch", deviations, _DEVIATIONS),
        (_DEVICE, "kinds of devices, as `backends explain device cuda`", device_limits.kinds(), ""),
    )  # fmt: skip
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
        ("reported in", ", ".join(hazard.sources)),
    ]
    return Passage(code, tuple(lines))


def _message(code: str) -> Passage:
    """Return the page of one error message of `doctor --from`, as it is answered without a machine."""
    row = messages()[code]
    check = diagnose(of_text(row.example)).checks[0]
    lines = (
        ("", check.why),
        ("for example", row.example.strip()),
        ("do", check.hint),
        ("type", check.command),
        ("reported in", ", ".join(row.sources)),
    )
    return Passage(code, tuple(line for line in lines if line[1]))


_CONCERNS = {
    Concern.DTYPE: "Element types that it lacks or does not compute in",
    Concern.OPERATION: "Operations that it lacks",
    Concern.MEMORY: "Memory",
    Concern.SYSTEM: "Requirements and incompatibilities",
}
_FEATURES = "Optional features"
_DEVICES_SHOWN = 4
_MOST_CHARACTERS = 500


class _Line(NamedTuple):
    """A limit or feature. here: whether it applies, as a sentence; needs: its requirement or its end."""

    what: str
    here: str
    detail: str
    needs: str
    source: str
    short: str


def device_kinds() -> Passage:
    """Return the kinds of devices, with what each is."""
    kinds = []
    for kind in device_limits.kinds():
        data = device_limits.load(kind)
        limits, features = _count(len(data.limits), "limit"), _count(len(data.features), "feature")
        kinds.append((kind, f"{data.title}: {limits}, {features}"))
    return Passage("Kinds of devices", tuple(kinds))


def _sections(page: KindPage) -> Iterator[tuple[str, str, list[_Line]]]:
    """Yield each section that has lines: its heading, the heading of its column of needs, its lines."""
    for concern, heading in _CONCERNS.items():
        limits = [limit for limit in page.limits if limit.limit.concern is concern]
        lines = []
        for limit, here in ((judged.limit, judged.here) for judged in limits):
            needs = " and ".join(map(str, limit.lifted_by)) or "nothing"
            # The condition of the limit, as the beginning of a sentence; empty if it is general.
            places: dict[str, list[str]] = {"below": [], "without": []}
            for need in limit.lifted_by:
                places["below" if need.at_least else "without"].append(str(need))
            condition = " or ".join(f"{word} {' or '.join(place)}" for word, place in places.items() if place)
            condition = f"{condition[:1].upper()}{condition[1:]}:" if condition else ""
            short = f"{applies(here)} {condition} {limit.detail}"
            lines.append(_Line(limit.what, applies(here), limit.detail, needs, limit.source, short))
        if lines:
            yield heading, "Ends with", lines
    if page.features:
        lines = []
        for feature, here in ((judged.feature, judged.here) for judged in page.features):
            needs, status = (
                " and ".join(map(str, feature.needs)),
                _sentence(here, "Yes", "No", "here"),
            )
            short = f"{status} {feature.detail}" + ("" if status else f" It needs {needs}.")
            lines.append(_Line(feature.what, status, feature.detail, needs, feature.source, short))
        yield _FEATURES, "Needs", lines


def device_passages(page: KindPage) -> list[Passage]:
    """Return the page of a kind; each limit and feature that was checked begins with its result."""
    found = [Passage(f"{page.kind}: {page.title}", tuple(_head(page)))]
    for heading, _, lines in _sections(page):
        rows = ((line.what, f"{line.short} [{line.source}]".split()) for line in lines)
        found.append(Passage(heading, tuple((subject, " ".join(words)) for subject, words in rows)))
    return found


def device_markdown(page: KindPage, level: int = 2) -> str:
    """Return the page of a kind as Markdown, with a table for each kind of limit."""
    parts = [f"{'#' * level} {page.kind}: {page.title}"]
    head = [f"- {literal(term)}: {literal(text)}" for term, text in _head(page) if term]
    parts += ["\n".join(head)] if head else []
    parts += [literal(text) for term, text in _head(page) if not term]
    for heading, needs, lines in _sections(page):
        columns = ("What", "Here", "Detail", needs, "Source")
        rows = [[literal(cell) for cell in line[:5]] for line in lines]
        parts += [f"{'#' * (level + 1)} {heading}", table(columns, rows)]
    return "\n\n".join(parts) + "\n"


def applies(here: Here | None) -> str:
    """Return whether a limit applies here, as a sentence; "" without such a device."""
    return _sentence(here, "Applies", "Does not apply", "applies")


def _sentence(here: Here | None, yes: str, no: str, word: str) -> str:
    if here is None:
        return ""
    because = one_line(here.because)
    if here.holds is not None:
        return f"{yes if here.holds else no}: {because}."
    if here.on and here.not_on:
        on, not_on = (", ".join(map(str, devices)) for devices in (here.on, here.not_on))
        return f"{word.capitalize()} for device {on}, not for device {not_on}: {because}."
    return f"Could not be determined: {because}."


def _head(page: KindPage) -> Iterator[tuple[str, str]]:
    """Yield what was found of the kind, and the values of its page."""
    if page.present is False:
        yield "", "No such device was found; the following describes the kind in general."
    elif page.present is None and page.because:
        yield "", f"Whether there is one could not be determined: {one_line(page.because)}."
    for device in page.devices[:_DEVICES_SHOWN]:
        yield "device", shortened(one_line(device), _MOST_CHARACTERS)
    if (left := len(page.devices) - _DEVICES_SHOWN) > 0:
        yield "", f"and {_count(left, 'device')} more"
    labels = device_limits.load(page.kind).shown
    for name, value in page.values.items():
        shown = shortened(one_line(amount(name.rpartition(".")[2], value)), _MOST_CHARACTERS)
        yield labels.get(name, name), f"{shown} ({name})"


def _count(number: int, word: str) -> str:
    return counted(number, word) if number else f"no {word}s"


def deviations() -> list[Passage]:
    """Return every difference from torch."""
    return [deviation(row) for row in DEVIATIONS]


def deviation(row: Deviation) -> Passage:
    """Return one difference from torch."""
    modules = ", ".join(row.names) if "*" not in row.names else "every module"
    lines = (("where", modules), ("torch", row.torch), ("mlbackends", row.ours), ("why", row.why))
    return Passage(row.code, lines)


def switch(switch: Switch) -> Passage:
    """Return one switch: what it does, accepts and starts with, and what reads it."""
    default = "by what is installed" if switch.default is PROBED else _switch_value(switch, switch.default)
    lines = [
        ("", switch.doc),
        ("accepts", listing.accepts(switch) or "nothing: it is an answer, not a setting"),
        ("default", default),
    ]
    newer = {"": switch.since, **getattr(switch.kind, "since", {})}
    if since := [f"torch {at}{word and f' for {word}'}" for word, at in newer.items() if at]:
        lines.append(("since", ", ".join(since)))
    if switch.inside_flags not in (NOT_IN_FLAGS, None):
        lines.append(("in flags()", f"{_switch_value(switch, switch.inside_flags)} unless given"))
    if not switch.read_only:
        lines.append(("variable", ", ".join(switch.variables)))
    lines.append(("read by", ", ".join(switch.used_by) or "nothing yet"))
    if switch.reached == "variable":
        in_python = "read when a library is loaded; nothing in Python changes it"
    else:
        sets, reads = set_by(switch), read_by(switch)
        in_python = f"{sets}; {reads} reads it" if sets not in ("", reads) else reads
    lines.append(("in Python", in_python))
    if concerned := [row.code for row in DEVIATIONS if switch.name in row.names]:
        lines.append(("see also", ", ".join(concerned)))
    return Passage(switch.name, tuple(lines))


def _switch_value(switch: Switch, value: object) -> str:
    return setting(as_data(switch, value), "unset: the library chooses")

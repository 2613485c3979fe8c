"""The pages of `backends explain`: kinds of devices, switches, and differences between torch and ours."""

from collections.abc import Iterator
from typing import NamedTuple

from mlbackends.audit import device_limits
from mlbackends.base.errors import counted
from mlbackends.model.device_kinds import Concern, Here, KindPage
from mlbackends.switches import listing
from mlbackends.switches.deviations import DEVIATIONS, Deviation
from mlbackends.switches.files import as_data, groups, members
from mlbackends.switches.listing import read_by, set_by
from mlbackends.switches.table import NOT_IN_FLAGS, PROBED, SWITCHES, Switch
from mlbackends_cli.text.markdown import literal, table
from mlbackends_cli.text.plain import Passage, amount, one_line, setting, shortened

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
        for limit, here in ((each.limit, each.here) for each in limits):
            needs = " and ".join(map(str, limit.lifted_by)) or "nothing"
            # The condition of the limit, as the beginning of a sentence; empty if it is general.
            places: dict[str, list[str]] = {"below": [], "without": []}
            for need in limit.lifted_by:
                places["below" if need.at_least else "without"].append(str(need))
            condition = " or ".join(
                f"{word} {' or '.join(each)}" for word, each in places.items() if each
            )
            condition = f"{condition[:1].upper()}{condition[1:]}:" if condition else ""
            short = f"{applies(here)} {condition} {limit.detail}"
            lines.append(_Line(limit.what, applies(here), limit.detail, needs, limit.source, short))
        if lines:
            yield heading, "Ends with", lines
    if page.features:
        lines = []
        for feature, here in ((each.feature, each.here) for each in page.features):
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


def switch_topics() -> list[str]:
    """Return the codes of the deviations, the groups of switches, and the switches."""
    return [*(each.code for each in DEVIATIONS), *groups(), *SWITCHES]


def switch_passages(topic: str) -> list[Passage]:
    """Return the deviation of this code, and the switches of this name or group; [] if there are none."""
    found = [deviation(each) for each in DEVIATIONS if each.code == topic]
    names = [topic] if topic in SWITCHES else []
    return found + [switch(SWITCHES[name]) for name in (*names, *members(topic))]


def switch_modules() -> Passage:
    """Return the switches of each module."""
    modules: dict[str, list[str]] = {}
    for switch in SWITCHES.values():
        modules.setdefault(switch.module or "mlbackends", []).append(switch.name)
    return Passage("Switches", tuple((word, ", ".join(names)) for word, names in modules.items()))


def deviations() -> list[Passage]:
    """Return every difference from torch."""
    return [deviation(each) for each in DEVIATIONS]


def deviation(each: Deviation) -> Passage:
    """Return one difference from torch."""
    modules = ", ".join(each.names) if "*" not in each.names else "every module"
    lines = (
        ("where", modules),
        ("torch", each.torch),
        ("mlbackends", each.ours),
        ("why", each.why),
    )
    return Passage(each.code, lines)


def switch(switch: Switch) -> Passage:
    """Return one switch: what it does, accepts and starts with, and what reads it."""
    default = (
        "by what is installed"
        if switch.default is PROBED
        else _switch_value(switch, switch.default)
    )
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
    if concerned := [each.code for each in DEVIATIONS if switch.name in each.names]:
        lines.append(("see also", ", ".join(concerned)))
    return Passage(switch.name, tuple(lines))


def _switch_value(switch: Switch, value: object) -> str:
    return setting(as_data(switch, value), "unset: the library chooses")

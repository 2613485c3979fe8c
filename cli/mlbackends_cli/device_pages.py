"""`backends explain device`: the page of a kind of device, for a terminal and as Markdown."""

from collections.abc import Iterator

from mlbackends.audit import device_limits
from mlbackends.model.device_kinds import Concern, Here, KindPage, Need
from mlbackends.model.errors import counted
from mlbackends_cli.catalogue import amount
from mlbackends_cli.markdown import literal, table
from mlbackends_cli.plain import one_line, shortened
from mlbackends_cli.prose import Passage

CONCERNS = {
    Concern.DTYPE: "Element types that it does not have, or does not compute in",
    Concern.OPERATION: "Operations that it does not have",
    Concern.MEMORY: "Memory",
    Concern.SYSTEM: "What it does not work with or without",
}
FEATURES = "What it may offer"
_DEVICES_SHOWN = 4
_MOST_CHARACTERS = 500


def overview() -> Passage:
    """Return the kinds of devices, with what each is."""
    return Passage("Kinds of devices", tuple(map(_kind, device_limits.kinds())))


def _kind(kind: str) -> tuple[str, str]:
    limits = _count(len(device_limits.limits_of(kind)), "limit")
    features = _count(len(device_limits.features_of(kind)), "feature")
    return kind, f"{device_limits.title(kind)}: {limits}, {features}"


def passages(page: KindPage) -> list[Passage]:
    """Return the page of a kind; of what was looked at, each limit and feature begins with its verdict."""
    found = [Passage(f"{page.kind}: {page.title}", tuple(_head(page)))]
    for concern, heading in CONCERNS.items():
        lines = tuple(
            (
                each.limit.what,
                _sentences(
                    applies(each.here),
                    where(each.limit.lifted_by),
                    each.limit.detail,
                    f"[{each.limit.source}]",
                ),
            )
            for each in page.limits
            if each.limit.concern is concern
        )
        if lines:
            found.append(Passage(heading, lines))
    if page.features:
        lines = tuple(
            (
                each.feature.what,
                _sentences(
                    is_here(each.here),
                    each.feature.detail,
                    needs_what(each.feature.needs) if each.here is None else "",
                    f"[{each.feature.source}]",
                ),
            )
            for each in page.features
        )
        found.append(Passage(FEATURES, lines))
    return found


def markdown(page: KindPage, level: int = 2) -> str:
    """Return the page of a kind as Markdown, with a table for each kind of limit."""
    parts = [f"{'#' * level} {page.kind}: {page.title}"]
    head = [f"- {literal(term)}: {literal(text)}" for term, text in _head(page) if term]
    parts += ["\n".join(head)] if head else []
    parts += [literal(text) for term, text in _head(page) if not term]
    for concern, heading in CONCERNS.items():
        rows = [
            [
                literal(each.limit.what),
                literal(applies(each.here)),
                literal(each.limit.detail),
                literal(_all_of(each.limit.lifted_by) or "nothing"),
                literal(each.limit.source),
            ]
            for each in page.limits
            if each.limit.concern is concern
        ]
        if rows:
            columns = ("What", "Here", "Detail", "Ends with", "Source")
            parts += [f"{'#' * (level + 1)} {heading}", table(columns, rows)]
    if page.features:
        rows = [
            [
                literal(each.feature.what),
                literal(is_here(each.here)),
                literal(each.feature.detail),
                literal(_all_of(each.feature.needs)),
                literal(each.feature.source),
            ]
            for each in page.features
        ]
        columns = ("What", "Here", "Detail", "Needs", "Source")
        parts += [f"{'#' * (level + 1)} {FEATURES}", table(columns, rows)]
    return "\n\n".join(parts) + "\n"


def applies(here: Here | None) -> str:
    """Return whether a limit applies here, as a sentence; "" where there is nothing to hold it to."""
    if here is None:
        return ""
    if here.holds is None:
        return _unsure(here, "applies", "not")
    if here.holds:
        return f"Applies: {one_line(here.because)}."
    return f"Does not apply: {one_line(here.because)}."


def is_here(here: Here | None) -> str:
    """Return whether a feature is here, as a sentence; "" where there is nothing to ask."""
    if here is None:
        return ""
    if here.holds is None:
        return _unsure(here, "here", "not")
    return f"{'Yes' if here.holds else 'No'}: {one_line(here.because)}."


def where(needs: tuple[Need, ...]) -> str:
    """Return where a limit is, as the beginning of a sentence; "" where it is everywhere."""
    below = [str(need) for need in needs if need.at_least]
    without = [str(need) for need in needs if not need.at_least]
    parts = [f"below {' or '.join(below)}"] if below else []
    parts += [f"without {' or '.join(without)}"] if without else []
    return f"{_capital(' or '.join(parts))}:" if parts else ""


def needs_what(needs: tuple[Need, ...]) -> str:
    """Return what a feature needs, as a sentence."""
    return f"It needs {_all_of(needs)}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _unsure(here: Here, word: str, otherwise: str) -> str:
    """Say what could not be told of all devices, or differs between them."""
    said = one_line(here.because)
    if here.on and here.not_on:
        on, not_on = _numbers(here.on), _numbers(here.not_on)
        return f"{word.capitalize()} for device {on}, {otherwise} for device {not_on}: {said}."
    return f"Could not tell: {said}."


def _numbers(indices: tuple[int, ...]) -> str:
    return ", ".join(map(str, indices))


def _head(page: KindPage) -> Iterator[tuple[str, str]]:
    """Yield what was found of the kind, and the values of its page."""
    if page.found is False:
        yield "", "No such device is here; below is what holds of the kind."
    elif page.found is None and page.because:
        yield "", f"Whether one is here could not be told: {one_line(page.because)}."
    for device in page.devices[:_DEVICES_SHOWN]:
        yield "device", shortened(one_line(device), _MOST_CHARACTERS)
    if (left := len(page.devices) - _DEVICES_SHOWN) > 0:
        yield "", f"and {_count(left, 'device')} more"
    labels = device_limits.labels(page.kind)
    for name, value in page.values.items():
        shown = shortened(one_line(amount(name.rpartition(".")[2], value)), _MOST_CHARACTERS)
        yield labels.get(name, name), f"{shown} ({name})"


def _sentences(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _all_of(needs: tuple[Need, ...]) -> str:
    return " and ".join(map(str, needs))


def _count(number: int, word: str) -> str:
    return counted(number, word) if number else f"no {word}s"

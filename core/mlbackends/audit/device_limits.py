"""Check a report against what a kind of device cannot do and may offer.

`limits_of("mps")` are the limits as data; `limits_here("mps", report)` tells which of them apply on the
machine of a report, and `page_of` returns the whole page of a kind.
"""

import os
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from mlbackends.audit import device_kinds
from mlbackends.audit.hazard import ReportView
from mlbackends.model import registry
from mlbackends.model.comparison import fits
from mlbackends.model.device_kinds import (
    YARDSTICKS,
    DeviceKind,
    Feature,
    Here,
    JudgedFeature,
    JudgedLimit,
    KindPage,
    Limit,
    Need,
    Yardstick,
)
from mlbackends.model.dotted import is_certain
from mlbackends.model.errors import BadInput, UnknownName
from mlbackends.model.records import Device, Library, Report

REGISTRY = device_kinds.__name__
_FOLDER = os.path.dirname(device_kinds.__file__)
_COPY_FACTS = ("implementation", "architecture", "threading", "threads", "max_threads", "runtime")


@cache
def kinds() -> tuple[str, ...]:
    """Return the kinds of devices, by the words that people type."""
    own = {name.removesuffix(".toml") for name in os.listdir(_FOLDER) if name.endswith(".toml")}
    return tuple(sorted(own | set(registry.names(REGISTRY))))


@cache
def load(kind: str) -> DeviceKind:
    """Return the data of a kind. Raises UnknownName, with the nearest kind."""
    if kind not in kinds():
        raise UnknownName("kind of device", kind, kinds(), "backends explain device")
    try:
        with open(os.path.join(_FOLDER, f"{kind}.toml"), "rb") as file:
            import tomllib

            return msgspec.convert(tomllib.load(file), DeviceKind)
    except FileNotFoundError:
        return _of_module(registry.load(REGISTRY, kind))


def _of_module(module: ModuleType) -> DeviceKind:
    """Return a kind that another distribution adds."""
    return DeviceKind(
        title=(module.__doc__ or module.KIND).partition("\n")[0].rstrip("."),
        kind=module.KIND,
        devices=tuple(module.DEVICES),
        probes=tuple(module.PROBES),
        limits=tuple(module.LIMITS),
        features=tuple(module.FEATURES),
        shown={each.name: each.label for each in module.SHOWN},
    )


def limits_of(kind: str) -> tuple[Limit, ...]:
    """Return what a kind of device cannot do."""
    return load(kind).limits


def limits_here(kind: str, report: Report) -> tuple[JudgedLimit, ...]:
    """Return each limit, and whether it applies on the machine of a report."""
    return page_of(kind, report).limits


def page_of(kind: str, report: Report | None = None) -> KindPage:
    """Return the page of a kind; without a report, the data alone."""
    data = load(kind)
    view = ReportView(report) if report is not None else None
    found, because, devices = _found(data, view)
    return KindPage(
        kind=kind,
        title=data.title,
        found=found,
        because=because,
        devices=tuple(_label(device) for device in devices),
        limits=tuple(
            JudgedLimit(each, _limit_here(each, view) if view and found else None)
            for each in data.limits
        ),
        features=tuple(
            JudgedFeature(each, _feature_here(each, view) if view and found else None)
            for each in data.features
        ),
        values=_values(data, view) if view else {},
    )


def _found(
    data: DeviceKind, report: ReportView | None
) -> tuple[bool | None, str, tuple[Device, ...]]:
    """Return whether the machine has such a device, why that is unknown, and the devices."""
    if report is None:
        return None, "", ()
    if not data.devices:
        return True, "", ()
    unsure = ""
    for name in data.devices:
        probe = report.probe(name)
        devices = tuple(each for each in report.devices(name) if each.kind == data.kind)
        if devices:
            return True, "", devices
        if probe is None or probe.presence is None or not is_certain(probe):
            reasons = probe.reasons if probe else ()
            first = reasons[0].message if reasons else "it could not be told"
            unsure = unsure or report.could_tell(name) or first
    return (None, unsure, ()) if unsure else (False, "", ())


def _label(device: Device) -> str:
    words = (device.name, device.capability, device.pci_address)
    return f"{device.index}: {', '.join(word for word in words if word) or device.kind}"


def _limit_here(limit: Limit, report: ReportView) -> Here:
    if not limit.lifted_by:
        return Here(True, "nothing lifts it")
    seen = _all_met(limit.lifted_by, report)
    return Here(None if seen.met is None else not seen.met, seen.because, seen.not_on, seen.on)


def _feature_here(feature: Feature, report: ReportView) -> Here:
    seen = _all_met(feature.needs, report)
    return Here(seen.met, seen.because, seen.on, seen.not_on)


def _values(data: DeviceKind, report: ReportView) -> dict[str, Any]:
    """Return the values of a page that the report has, by dotted name."""
    values: dict[str, Any] = {}
    for dotted in data.shown:
        probe, _, name = dotted.partition(".")
        if name == "libraries":
            value: Any = [_copy(library) for library in report.libraries(probe)]
        else:
            value = report.version(probe) if name == "version" else report.fact(dotted)
        if value not in (None, "", [], {}):
            values[dotted] = value
    return values


def _copy(library: Library) -> str:
    """Return one copy of a library: what it is, its owner, and its facts about threads."""
    about = [f"{name} {library.facts[name]}" for name in _COPY_FACTS if name in library.facts]
    name = " ".join(part for part in (library.soname or library.name, library.version) if part)
    owner = f" of {library.owner}" if library.owner else f" at {library.path}"
    wins = "" if library.wins or not library.wins_because else ", shadowed"
    return f"{name}{owner}{wins}" + (f" ({', '.join(about)})" if about else "")


# ---- needs -------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """Whether a need is met; None where that is unknown or differs between devices.

    on and not_on: the numbers of the devices that meet it and that do not.
    """

    met: bool | None
    because: str
    on: tuple[int, ...] = ()
    not_on: tuple[int, ...] = ()


def _all_met(needs: tuple[Need, ...], report: ReportView) -> Seen:
    """Return whether all needs are met: one that is not decides, then one that is unknown."""
    all_seen = [met(need, report) for need in needs]
    for answer in (False, None):
        if found := [seen for seen in all_seen if seen.met is answer]:
            return found[0]
    on = next((seen.on for seen in all_seen if seen.on), ())
    return Seen(True, "; ".join(seen.because for seen in all_seen), on)


def met(need: Need, report: ReportView) -> Seen:
    """Return whether the machine of a report meets a need."""
    yardstick = YARDSTICKS[need.of]
    if yardstick.field:
        return _met_by_devices(need, yardstick, report)
    for name in yardstick.names:
        probe, _, last = name.partition(".")
        value = report.version(probe) if last == "version" else report.fact(name)
        if value not in (None, ""):
            fits_need = _fits(need, value)
            because = f"{need.of} is {_text(value)}"
            if isinstance(value, list) and need.one_of:
                because = f"{' or '.join(need.one_of)} is {'' if fits_need else 'not '}there"
            return Seen(fits_need, because)
    names = " or ".join(yardstick.names)
    return Seen(None, f"the report has no {names}; it may need --depth usable")


def _met_by_devices(need: Need, yardstick: Yardstick, report: ReportView) -> Seen:
    """Use the devices of the first probe whose devices have a value; each may differ."""
    probes = [name.removesuffix(".devices") for name in yardstick.names]
    for probe in probes:
        devices = report.devices(probe)
        values = {each.index: _value_of(each, yardstick.field) for each in devices}
        values = {index: value for index, value in values.items() if value is not None}
        if values:
            return _joined(need, values, len(devices))
    return Seen(None, f"{' or '.join(probes)} asked no device (it needs --depth usable)")


def _value_of(device: Device, field: str) -> Any:
    """Return a device's value; None where it is not there: files alone tell no features."""
    if field in ("features", "capability"):
        return getattr(device, field) or None
    return device.facts.get(field)


def _joined(need: Need, values: dict[int, Any], count: int) -> Seen:
    """Combine the values of devices. count: how many devices there are."""
    answers = {index: _fits(need, value) for index, value in values.items()}
    on = tuple(index for index, answer in answers.items() if answer)
    not_on = tuple(index for index, answer in answers.items() if answer is False)
    if on and not_on:
        has = "has" if len(on) == 1 else "have"
        because = f"device {_numbers(on)} {has} {need}, device {_numbers(not_on)} not"
        return Seen(None, because, on, not_on)
    if all(isinstance(value, str) for value in values.values()):
        because = f"{need.of} is {', '.join(dict.fromkeys(map(_text, values.values())))}"
    else:
        because = f"the driver says {'yes' if on else 'no'}"
    if missing := count - len(on) - len(not_on):
        because = f"{missing} of {count} devices did not tell; else {because}"
        return Seen(None, because, on, not_on)
    return Seen(bool(on), because, on, not_on)


def _fits(need: Need, value: Any) -> bool | None:
    """Tell whether a value is what is needed; None where the two cannot be compared."""
    if need.at_least:
        try:
            return fits(str(value), ">=", need.at_least)
        except BadInput:
            return None
    if not need.one_of:
        return bool(value)
    words = [str(word) for word in (value if isinstance(value, list | tuple) else [value])]
    return any(
        word == wanted or (wanted.endswith("*") and word.startswith(wanted.removesuffix("*")))
        for word in words
        for wanted in need.one_of
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "there" if value else "not there"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _numbers(indices: tuple[int, ...]) -> str:
    return ", ".join(map(str, indices))

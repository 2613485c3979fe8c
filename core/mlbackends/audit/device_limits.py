"""Check a report against what a kind of device cannot do and may offer.

`load("mps")` is a kind as data; `page_of("mps", report)` states which of its limits and features apply to the
machine of a report.
"""

import os
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec

from mlbackends.audit import device_kinds
from mlbackends.audit.hazard import ReportView
from mlbackends.base import registry
from mlbackends.base.comparison import fits
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.tables import table
from mlbackends.model.device_kinds import (
    DeviceKind,
    Here,
    JudgedFeature,
    JudgedLimit,
    KindPage,
    Need,
    Yardstick,
)
from mlbackends.model.records import Device, Library, Report
from mlbackends.survey.dotted import is_certain

#: The value of a report that decides about a need, under its name for people.
YARDSTICKS = msgspec.convert(table("audit/yardsticks"), dict[str, Yardstick])
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
    with suppress(FileNotFoundError):
        return msgspec.convert(table(os.path.join(_FOLDER, f"{kind}.toml")), DeviceKind)
    module = registry.load(REGISTRY, kind)  # of another distribution
    return DeviceKind(
        title=(module.__doc__ or module.KIND).partition("\n")[0].rstrip("."),
        kind=module.KIND,
        devices=tuple(module.DEVICES),
        probes=tuple(module.PROBES),
        limits=tuple(module.LIMITS),
        features=tuple(module.FEATURES),
        shown={shown.name: shown.label for shown in module.SHOWN},
    )


def page_of(kind: str, report: Report | None = None) -> KindPage:
    """Return the page of a kind; without a report, the data alone."""
    data = load(kind)
    limits = [JudgedLimit(limit, None) for limit in data.limits]
    features = [JudgedFeature(feature, None) for feature in data.features]
    if report is None:
        return KindPage(kind, data.title, None, "", (), tuple(limits), tuple(features), {})
    view = ReportView(report)
    found, because, devices = _found(data, view)
    if found:
        limits = []
        for limit in data.limits:
            needed = _all_met(limit.lifted_by, view)
            holds = None if needed.holds is None else not needed.holds
            judged = Here(holds, needed.because, needed.not_on, needed.on)
            if not limit.lifted_by:
                judged = Here(True, "nothing lifts it")
            limits.append(JudgedLimit(limit, judged))
        features = [JudgedFeature(feature, _all_met(feature.needs, view)) for feature in data.features]
    labels = []
    for device in devices:
        words = (device.name, device.capability, device.pci_address)
        labels.append(f"{device.index}: {', '.join(filter(None, words)) or device.kind}")
    values: dict[str, Any] = {}
    for dotted in data.shown:
        probe, _, name = dotted.partition(".")
        value = view.version(probe) if name == "version" else view.fact(dotted)
        if name == "libraries":
            value = [_copy(library) for library in view.libraries(probe)]
        if value not in (None, "", [], {}):
            values[dotted] = value
    return KindPage(kind, data.title, found, because, tuple(labels), tuple(limits), tuple(features), values)


def _found(data: DeviceKind, report: ReportView) -> tuple[bool | None, str, tuple[Device, ...]]:
    """Return whether the machine has such a device, why that is unknown, and the devices."""
    if not data.devices:
        return True, "", ()
    unsure = ""
    for name in data.devices:
        probe = report.probe(name)
        devices = tuple(device for device in report.devices(name) if device.kind == data.kind)
        if devices:
            return True, "", devices
        if probe is None or probe.presence is None or not is_certain(probe):
            reasons = probe.reasons if probe else ()
            first = reasons[0].message if reasons else "it could not be determined"
            unsure = unsure or report.why_uncertain(name) or first
    return (None, unsure, ()) if unsure else (False, "", ())


def _copy(library: Library) -> str:
    """Return one copy of a library: what it is, its owner, and its facts about threads."""
    about = [f"{name} {library.facts[name]}" for name in _COPY_FACTS if name in library.facts]
    name = " ".join(filter(None, (library.soname or library.name, library.version)))
    owner = f" of {library.owner}" if library.owner else f" at {library.path}"
    wins = "" if library.wins or not library.wins_because else ", not taken"
    return f"{name}{owner}{wins}" + (f" ({', '.join(about)})" if about else "")


# ---- needs -------------------------------------------------------------------------------------


def _all_met(needs: tuple[Need, ...], report: ReportView) -> Here:
    """Return whether all needs are met: one that is not decides, then one that is unknown."""
    all_met = [met(need, report) for need in needs]
    for answer in (False, None):
        if found := [need for need in all_met if need.holds is answer]:
            return found[0]
    on = next((need.on for need in all_met if need.on), ())
    return Here(True, "; ".join(need.because for need in all_met), on)


def met(need: Need, report: ReportView) -> Here:
    """Return whether the machine of a report meets a need, and which devices do where it is about them."""
    yardstick = YARDSTICKS[need.property]
    if yardstick.field:
        return _met_by_devices(need, yardstick, report)
    for name in yardstick.names:
        probe, _, last = name.partition(".")
        value = report.version(probe) if last == "version" else report.fact(name)
        if value not in (None, ""):
            fits_need = _fits(need, value)
            because = f"{need.property} is {_text(value)}"
            if isinstance(value, list) and need.one_of:
                because = f"{' or '.join(need.one_of)} is {'' if fits_need else 'not '}there"
            return Here(fits_need, because)
    names = " or ".join(yardstick.names)
    return Here(None, f"the report has no {names}; it may need --depth usable")


def _met_by_devices(need: Need, yardstick: Yardstick, report: ReportView) -> Here:
    """Use the devices of the first probe whose devices have a value; each may differ."""
    probes = [name.removesuffix(".devices") for name in yardstick.names]
    field = yardstick.field
    is_own = field in ("features", "capability")
    for probe in probes:
        values = {}
        for device in report.devices(probe):
            # An empty value is unknown: files alone have no features.
            value = getattr(device, field) or None if is_own else device.facts.get(field)
            if value is not None:
                values[device.index] = value
        if values:
            count = len(report.devices(probe))
            break
    else:
        return Here(None, f"{' or '.join(probes)} asked no device (it needs --depth usable)")
    fits = {index: _fits(need, value) for index, value in values.items()}
    on = tuple(index for index, answer in fits.items() if answer)
    not_on = tuple(index for index, answer in fits.items() if answer is False)
    if on and not_on:
        has = "has" if len(on) == 1 else "have"
        numbers, failing = (", ".join(map(str, side)) for side in (on, not_on))
        return Here(None, f"device {numbers} {has} {need}, device {failing} not", on, not_on)
    if all(isinstance(value, str) for value in values.values()):
        because = f"{need.property} is {', '.join(dict.fromkeys(map(_text, values.values())))}"
    else:
        because = f"the driver says {'yes' if on else 'no'}"
    if missing := count - len(on) - len(not_on):
        because = f"{missing} of {count} devices did not report it; otherwise {because}"
        return Here(None, because, on, not_on)
    return Here(bool(on), because, on, not_on)


def _fits(need: Need, value: Any) -> bool | None:
    """Return whether a value is what is needed; None where the two cannot be compared."""
    if need.at_least:
        try:
            return fits(str(value), ">=", need.at_least)
        except BadInput:
            return None
    if not need.one_of:
        return bool(value)
    words = [str(word) for word in (value if isinstance(value, list | tuple) else [value])]
    return any(
        word == alternative or (alternative.endswith("*") and word.startswith(alternative.removesuffix("*")))
        for word in words
        for alternative in need.one_of
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "there" if value else "not there"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)

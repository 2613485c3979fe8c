"""Whether a machine meets a need of `mlbackends.model.device_kinds`: yes, no, or it could not be told."""

from typing import Any, NamedTuple

from mlbackends.audit.known import Known
from mlbackends.model.comparison import fits
from mlbackends.model.device_kinds import YARDSTICKS, Need, Yardstick
from mlbackends.model.errors import BadInput
from mlbackends.model.records import Device


class Seen(NamedTuple):
    """met: None where it could not be told, or differs between devices. said: what was seen.

    on and not_on: the numbers of the devices that meet it and that do not.
    """

    met: bool | None
    said: str
    on: tuple[int, ...] = ()
    not_on: tuple[int, ...] = ()


def met(need: Need, known: Known) -> Seen:
    """Return whether the machine of a report meets a need."""
    yardstick = YARDSTICKS[need.of]
    if yardstick.field:
        return _met_by_devices(need, yardstick, known)
    for name in yardstick.names:
        value = known.version(name[:-8]) if name.endswith(".version") else known.fact(name)
        if value not in (None, ""):
            return Seen(_fits(need, value), _said(need, value))
    names = " or ".join(yardstick.names)
    return Seen(None, f"the report has no {names}; it may need --depth usable")


def _said(need: Need, value: Any) -> str:
    """Return what was seen, as a sentence's half."""
    if isinstance(value, list) and need.one_of:
        return f"{' or '.join(need.one_of)} is {'' if _fits(need, value) else 'not '}there"
    return f"{need.of} is {_text(value)}"


def _met_by_devices(need: Need, yardstick: Yardstick, known: Known) -> Seen:
    """Ask the devices of the first probe whose devices tell; each may answer differently."""
    for name in yardstick.names:
        devices = known.devices(name.removesuffix(".devices"))
        told = {
            each.index: value
            for each in devices
            if (value := _of_device(each, yardstick.field)) is not None
        }
        if told:
            return _joined(need, told, len(devices))
    probes = " or ".join(name.removesuffix(".devices") for name in yardstick.names)
    return Seen(None, f"{probes} asked no device (it needs --depth usable)")


def _of_device(device: Device, field: str) -> Any:
    """Return what a device tells, None where it does not: one that only files told of has no features."""
    if field == "features":
        return device.features or None
    return device.capability or None if field == "capability" else device.facts.get(field)


def _joined(need: Need, told: dict[int, Any], count: int) -> Seen:
    """Put together what the devices told; count: how many there are."""
    answers = {index: _fits(need, value) for index, value in told.items()}
    on = tuple(index for index, answer in answers.items() if answer)
    not_on = tuple(index for index, answer in answers.items() if answer is False)
    has = "has" if len(on) == 1 else "have"
    if on and not_on:
        said = f"device {_numbers(on)} {has} {need}, device {_numbers(not_on)} not"
        return Seen(None, said, on, not_on)
    words = dict.fromkeys(_text(value) for value in told.values())
    said = f"{need.of} is {', '.join(words)}" if _is_single(told) else f"the driver says {_yes(on)}"
    if missing := count - len(on) - len(not_on):
        return Seen(None, f"{missing} of {count} devices did not tell; else {said}", on, not_on)
    return Seen(bool(on), said, on, not_on)


def _is_single(told: dict[int, Any]) -> bool:
    return all(isinstance(value, str) for value in told.values())


def _yes(on: tuple[int, ...]) -> str:
    return "yes" if on else "no"


def _fits(need: Need, value: Any) -> bool | None:
    """Tell whether a value is what is needed; None where it makes no sense."""
    if need.at_least:
        try:
            return fits(str(value), ">=", need.at_least)
        except BadInput:
            return None
    if need.one_of:
        words = value if isinstance(value, list | tuple) else (value,)
        return any(_is_word(str(word), wanted) for word in words for wanted in need.one_of)
    return bool(value)


def _is_word(word: str, wanted: str) -> bool:
    stem = wanted.removesuffix("*")
    return word == wanted or (stem != wanted and word.startswith(stem))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "there" if value else "not there"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _numbers(indices: tuple[int, ...]) -> str:
    return ", ".join(map(str, indices))

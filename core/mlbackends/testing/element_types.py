"""Element types by name, and which of them a device cannot compute in."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mlbackends.model.device_kinds import Limit
    from mlbackends.model.records import Report

_OTHER_NAMES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}


def name_of_type(dtype: Any, more: tuple[str, ...] = ()) -> str:
    """Return "float16" for "half", torch.float16, numpy.float16 and numpy.dtype("float16").

    more: names that are taken too. Raises UnknownName, with the nearest, for what is no element type.
    """
    from mlbackends.model.errors import UnknownName
    from mlbackends.model.problem import ITEM_BYTES

    text = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    text = text.removeprefix("torch.").rstrip("_")
    # Python's own `float` is 64 bits to numpy and 32 to torch: only torch's texts have a meaning.
    name = text if isinstance(dtype, type) else _OTHER_NAMES.get(text, text)
    if name not in ITEM_BYTES and name not in more:
        raise UnknownName("element type", text, (*ITEM_BYTES, *more))
    return name


def unsupported(
    device: str, dtype: Any, *, report: Report | None = None, emulated: bool = False
) -> str:
    """Return why a device cannot compute in an element type, "" where nothing speaks against it.

    device: a kind that `backends explain device` knows, with or without a number. dtype: a name such as
    "bfloat16", or a dtype of torch or numpy. report: the machine; left out, the one that the run of
    pytest is judged by, or this one. emulated: whether what is only emulated counts too. A limit that
    depends on what the report does not tell does not count. Raises UnknownName.
    """
    from mlbackends.audit.device_limits import kinds, limits_here, load

    kind, _, index = str(device).partition(":")
    load(kind)
    types = {each: _types(each) for each in kinds()}
    every = sorted({limit.what for limits in types.values() for limit in limits})
    name = name_of_type(dtype, tuple(every))
    limits = [each for each in types[kind] if each.what == name and (emulated or not each.emulated)]
    if not limits:
        return ""
    limit = limits[0]
    why = f"{kind} has no {name}: {limit.detail} ({limit.source})"
    if not limit.lifted_by:
        return why
    judged = limits_here(kind, report or _report(kind, limit))
    here = next(each.here for each in judged if each.limit == limit)
    if here is None or not (here.holds or (index.isdecimal() and int(index) in here.on)):
        return ""
    return f"{why}; it needs {' and '.join(map(str, limit.lifted_by))}, and {here.because}"


def _types(kind: str) -> list[Limit]:
    from mlbackends.audit.device_limits import limits_of
    from mlbackends.model.device_kinds import Concern

    return [limit for limit in limits_of(kind) if limit.concern is Concern.DTYPE]


def _report(kind: str, limit: Limit) -> Report:
    """Return a report of the probes that decide about a limit."""
    from mlbackends.audit.device_limits import load
    from mlbackends.model.device_kinds import YARDSTICKS
    from mlbackends.testing.machine import current

    names = [name for need in limit.lifted_by for name in YARDSTICKS[need.of].names]
    probes = (*load(kind).devices, *(name.partition(".")[0] for name in names))
    return current().report(tuple(dict.fromkeys(probes)))

"""Which element types a device cannot compute in, from the data of `backends explain device KIND`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlbackends.audit.device_limits import kinds, limits_here, limits_of, load
from mlbackends.model.device_kinds import YARDSTICKS, Concern, Limit
from mlbackends.testing.element_types import name_of_type

if TYPE_CHECKING:
    from mlbackends.model.records import Report


def unsupported(
    device: str, dtype: Any, *, report: Report | None = None, emulated: bool = False
) -> str:
    """Return why a device cannot compute in an element type, "" where nothing speaks against it.

    device: a kind that `backends explain device` knows, with or without a number. dtype: a name such as
    "bfloat16", or a dtype of torch or numpy. report: the machine; left out, the one that the run of
    pytest is judged by, or this one. emulated: whether what is only emulated counts too. A limit that
    depends on what the report does not tell does not count. Raises UnknownName.
    """
    kind, _, index = str(device).partition(":")
    load(kind)
    every = {each.what for name in kinds() for each in _types(name)}
    name = name_of_type(dtype, tuple(sorted(every)))
    for limit in _types(kind):
        if limit.what == name and (emulated or not limit.emulated):
            return _applies(kind, index, limit, report)
    return ""


def _types(kind: str) -> list[Limit]:
    return [limit for limit in limits_of(kind) if limit.concern is Concern.DTYPE]


def _applies(kind: str, index: str, limit: Limit, report: Report | None) -> str:
    said = f"{kind} has no {limit.what}: {limit.detail} ({limit.source})"
    if not limit.lifted_by:
        return said
    here = next(
        each.here
        for each in limits_here(kind, report or _report(kind, limit))
        if each.limit == limit
    )
    if here is None:
        return ""
    split = index.isdecimal() and int(index) in here.on
    needs = " and ".join(map(str, limit.lifted_by))
    return f"{said}; it needs {needs}, and {here.because}" if here.holds or split else ""


def _report(kind: str, limit: Limit) -> Report:
    """Return what the probes say that decide about a limit."""
    from mlbackends.testing.machine import current

    told_by = [name for need in limit.lifted_by for name in YARDSTICKS[need.of].names]
    probes = (*load(kind).devices, *(name.partition(".")[0] for name in told_by))
    return current().report(tuple(dict.fromkeys(probes)))

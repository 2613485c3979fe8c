"""Element types by name, and which of them a device cannot compute in."""

from typing import Any

from mlbackends.audit.device_limits import YARDSTICKS, kinds, load, page_of
from mlbackends.base.element_types import ITEM_BYTES, element_type
from mlbackends.base.errors import UnknownName
from mlbackends.model.device_kinds import Concern
from mlbackends.model.records import Report
from mlbackends.testing.machine import current


def name_of_type(dtype: Any, more: tuple[str, ...] = ()) -> str:
    """Return "float16" for "half", "fp16", torch.float16, numpy.float16 and numpy.dtype("float16").

    more: other names that are accepted. Raises UnknownName, with the nearest name, for any other word.
    """
    text = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    text = text.removeprefix("torch.").rstrip("_")
    if text in (*ITEM_BYTES, *more):
        return text
    # Python's own `float` is 64 bits to numpy and 32 to torch: only torch's texts have a meaning.
    if isinstance(dtype, type):
        raise UnknownName("element type", text, (*ITEM_BYTES, *more))
    return element_type(text)


def unsupported(device: str, dtype: Any, *, report: Report | None = None, emulated: bool = False) -> str:
    """Return why a device cannot compute in an element type, "" where nothing speaks against it.

    device: a kind that `backends explain device` knows, with or without a number. dtype: a name such as
    "bfloat16", or a dtype of torch or numpy. report: the machine; left out, the one that the run of
    pytest is judged by, or this one. emulated: whether what is only emulated counts too. A limit that
    depends on a value that the report lacks does not count. Raises UnknownName.
    """
    kind, _, index = str(device).partition(":")
    own = load(kind)
    types = sorted(
        {limit.what for kind in kinds() for limit in load(kind).limits if limit.concern is Concern.DTYPE}
    )
    name = name_of_type(dtype, tuple(types))
    limits = [
        row
        for row in own.limits
        if row.concern is Concern.DTYPE and row.what == name and (emulated or not row.emulated)
    ]
    if not limits:
        return ""
    limit = limits[0]
    why = f"{kind} has no {name}: {limit.detail} ({limit.source})"
    if not limit.lifted_by:
        return why
    if report is None:  # of the probes that decide
        values = [value for need in limit.lifted_by for value in YARDSTICKS[need.property].names]
        probes = (*own.devices, *(value.partition(".")[0] for value in values))
        report = current().report(tuple(dict.fromkeys(probes)))
    judged = next(row.here for row in page_of(kind, report).limits if row.limit == limit)
    if judged is None or not (judged.holds or (index.isdecimal() and int(index) in judged.on)):
        return ""
    return f"{why}; it needs {' and '.join(map(str, limit.lifted_by))}, and {judged.because}"

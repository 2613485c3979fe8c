"""Lines of primitives that were read before, but for their stamp and time: most lines of any log.

They become records without the grammar, and share the signature, so that what follows from it is
worked out once.
"""

import re

from mlbackends.model.signature import PrimitiveSignature
from mlbackends.model.trace import Primitive
from mlbackends.tracing.durations import nanoseconds

_LIMIT = 2048
"""So many signatures are kept; a program that makes more calls than that begins anew."""
_V1 = "onednn_verbose,v1,"
MILLISECONDS = 1e6
"""What oneDNN tells times in, in nanoseconds."""
_STAMP_LENGTH = len("1795258901075.670898")
_PROBLEM = re.compile(r"[^\s,]+")
Known = tuple[PrimitiveSignature, str, str]
"""A signature, the event and how the cache was found."""
_known: dict[str, Known] = {}
_fronts: dict[str, Known] = {}
"""The same by all that stands before the problem: programs call one thing with many sizes."""


def record(line: str) -> Primitive | None:
    """Return the record of a line whose like was read before; None otherwise."""
    key, _, time = line.rpartition(",")
    start = None
    if line[len(_V1) : len(_V1) + 1].isdecimal() and line.startswith(_V1):
        key, start = _unstamped(key)
    found = _known.get(key) or _resized(key)
    duration = None if found is None else nanoseconds(time, MILLISECONDS)
    if found is None or duration is None:
        return None
    signature, event, cache_state = found
    return Primitive(
        tracer="onednn",
        raw=line,
        start_ns=start,
        clock="" if start is None else "epoch",
        duration_ns=duration,
        signature=signature,
        event=event,
        cache_state=cache_state,
    )


def _unstamped(key: str) -> tuple[str, int | None]:
    """Take a stamp of milliseconds with six decimals off; of any other form, return a key that none has."""
    end = key.find(",", len(_V1))
    whole, _, fraction = key[len(_V1) : end].partition(".")
    if len(whole) + len(fraction) + 1 > _STAMP_LENGTH or len(fraction) != 6:
        return "", None
    if not (whole.isdecimal() and fraction.isdecimal()):
        return "", None
    return _V1 + key[end + 1 :], int(whole + fraction)


def _resized(key: str) -> Known | None:
    """Return what a line is that differs in its problem alone from one that was read."""
    front, _, problem = key.rpartition(",")
    alike = _fronts.get(front)
    if alike is None or _PROBLEM.fullmatch(problem) is None or "_verbose" in problem:
        return None
    like, event, cache_state = alike
    signature = PrimitiveSignature(
        tracer=like.tracer,
        key=key,
        format=like.format,
        component=like.component,
        engine=like.engine,
        primitive=like.primitive,
        implementation=like.implementation,
        propagation=like.propagation,
        memory_descriptors=like.memory_descriptors,
        attributes=like.attributes,
        auxiliary=like.auxiliary,
        problem=problem,
    )
    _keep(key, (signature, event, cache_state))
    return _known[key]


def remember(found: Primitive) -> None:
    """Keep what was read with the grammar, if its line without stamp and time is its signature's key."""
    key = found.raw.rpartition(",")[0]
    if found.start_ns is not None:
        key = _unstamped(key)[0] if key.startswith(_V1) else ""
    if key != found.signature.key or found.duration_ns is None:
        return
    kept = found.signature, found.event, found.cache_state
    _keep(key, kept)
    if found.signature.problem:
        if len(_fronts) >= _LIMIT:
            _fronts.clear()
        _fronts[key.rpartition(",")[0]] = kept


def _keep(key: str, kept: Known) -> None:
    if len(_known) >= _LIMIT:
        _known.clear()
    _known[key] = kept

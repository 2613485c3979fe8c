"""The severity of a change: by weights.toml an error or a warning if something became worse, else a note."""

import re
from collections import Counter
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from mlbackends.base.comparison import fits
from mlbackends.base.errors import BadInput
from mlbackends.base.tables import table
from mlbackends.host.declared import facts_of
from mlbackends.model.audit import Severity
from mlbackends.model.difference import Change, Kind
from mlbackends.model.records import Presence

_LABEL = re.compile(r"^([^.\[]+\.(?:libraries|devices))\[.*?\](?=\.|$)", re.DOTALL)
_LEVELS = {str(presence): presence.level for presence in Presence}


class Weight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table. why: what is worse, for people."""

    names: tuple[str, ...]
    better: Literal["further", "newer", "more", "fewer"]
    severity: Severity
    why: str
    none_is_least: bool = False

    @property
    def pattern(self) -> str:
        """Its names as a regular expression."""
        return "|".join(re.escape(name).replace(r"\*", ".*") for name in self.names)


def weighed(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """Return the changes with their severity and the reason for it.

    If a thing is absent now, only its presence and devices count: its other values follow from that.
    A copy of a library that another one replaced, as libcudart.so.13 replaces libcudart.so.12, is not gone.
    """
    removed = {
        change.name.partition(".")[0]
        for change in changes
        if change.name.endswith(".presence") and change.after == str(Presence.ABSENT)
    }
    copies = Counter(
        (name.partition(".")[0], change.kind)
        for change in changes
        if (name := _LABEL.sub(r"\1", change.name, count=1)).endswith(".libraries")
    )
    all_weighed = []
    for change in changes:
        name = _LABEL.sub(r"\1", change.name, count=1)
        probe, _, rest = name.partition(".")
        weight = next((row for pattern, row in _weights() if pattern.fullmatch(name)), None)
        counts = probe not in removed or rest in ("presence", "devices")
        if rest == "libraries" and copies[probe, Kind.ADDED] >= copies[probe, Kind.REMOVED]:
            counts = False
        if weight is not None and counts and _is_worse(name, change, weight):
            change = replace(change, severity=weight.severity, why=weight.why)
        all_weighed.append(change)
    return tuple(all_weighed)


def _is_worse(name: str, change: Change, weight: Weight) -> bool:
    """Return whether a value is worse than it was; what has no order is not."""
    before: Any = change.before
    after: Any = change.after
    if weight.better == "fewer":
        before, after = after, before
    if before is None or after is None:
        return before not in (None, []) and (weight.none_is_least or isinstance(before, list))
    if weight.better == "further":
        # Undetermined is not absent, but worse than present.
        return before in _LEVELS and _LEVELS.get(after, 0.5) < _LEVELS[before]
    if isinstance(before, list) and isinstance(after, list):
        return bool(before)  # these are what left the list, and what came
    if isinstance(before, int | float) and isinstance(after, int | float):
        return after < before
    if not (isinstance(before, str) and isinstance(after, str)):
        return False
    probe, _, fact = name.partition(".")
    declared = facts_of(probe).get(fact)
    order = declared.order if declared else ()
    if weight.better != "newer" and not order:
        return False
    if not order:  # what follows names a build, which is neither older nor newer
        before, after = (re.split(r"[+-]", text, maxsplit=1)[0] for text in (before, after))
    try:
        return fits(after, "<", before, order)
    except BadInput:
        return False


@cache
def _weights() -> tuple[tuple[re.Pattern[str], Weight], ...]:
    rows = msgspec.convert(table("audit/weights.toml")["weight"], tuple[Weight, ...])
    return tuple((re.compile(row.pattern, re.DOTALL), row) for row in rows)

"""`equals_snapshot`: what a report must have in common with one that was kept."""

import fnmatch

from msgspec import Struct

from mlbackends.audit.compare import compare, kept, sentence
from mlbackends.model.difference import Change
from mlbackends.model.dotted import is_certain
from mlbackends.model.errors import BadInput
from mlbackends.model.records import Report

_MOST_SHOWN = 5


class Golden(Struct, frozen=True):
    """A kept report, and which of its values count. names, but: dotted names, * for any text."""

    file: str
    report: Report
    names: tuple[str, ...]
    but: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What is expected, on one line."""
        return f"{', '.join(self.names)}: as in {self.file}"


def differences(golden: Golden, report: Report) -> tuple[Change, ...]:
    """Return what differs among the values that count; what could not be told is no difference."""
    try:
        found = kept(compare(golden.report, report), golden.names, golden.but)
    except BadInput:  # they have no probe in common
        return ()
    untold = {f"{name}.presence" for name in golden.report.probes if not _is_told(name, report)}
    return tuple(change for change in found.changes if change.name not in untold)


def untold(golden: Golden, report: Report) -> str:
    """Return why the two could not be compared in full, "" where they could."""
    if golden.report.depth.rung > report.depth.rung:
        return (
            f"{golden.file} was made with --depth {golden.report.depth},"
            f" this report with {report.depth}"
        )
    for name, probe in golden.report.probes.items():
        if _counts(golden, name) and is_certain(probe) and not _is_told(name, report):
            return f"{name} could not be told here"
    return ""


def listed(found: tuple[Change, ...]) -> str:
    """Return changes as one sentence, the first few of them."""
    more = len(found) - _MOST_SHOWN
    said = "; ".join(map(sentence, found[:_MOST_SHOWN]))
    return said + (f"; and {more} more" if more > 0 else "")


def _is_told(name: str, report: Report) -> bool:
    return name in report.probes and is_certain(report.probes[name])


def _counts(golden: Golden, probe: str) -> bool:
    """Tell whether any value of a probe may count."""
    return any(fnmatch.fnmatchcase(probe, name.partition(".")[0]) for name in golden.names)

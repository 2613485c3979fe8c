"""`equals_snapshot`: what a report must have in common with one that was kept."""

import fnmatch
import re
from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.model import registry
from mlbackends.model.records import Device, Report

_DEVICE_FIELDS = tuple(
    name
    for name in Device.__struct_fields__
    if name not in ("uuid", "serial", "volatile", "reasons", "facts")
)
_MOST_SHOWN = 5


class Golden(Struct, frozen=True):
    """A kept report, and which of its values count. names, but: globs over dotted names."""

    file: str
    report: Report
    names: tuple[str, ...]
    but: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What is expected, on one line."""
        return f"{', '.join(self.names)}: as in {self.file}"


class Difference(Struct, frozen=True):
    """One value that differs; None where it is not there."""

    name: str
    kept: Any
    seen: Any


def differences(golden: Golden, report: Report) -> list[Difference]:
    """Return what differs among the values that count, by dotted name, sorted."""
    kept, seen = _selected(golden, golden.report), _selected(golden, report)
    return [
        Difference(name, kept.get(name), seen.get(name))
        for name in sorted(kept.keys() | seen.keys())
        if kept.get(name) != seen.get(name)
    ]


def incomparable(golden: Golden, report: Report) -> str:
    """Return why the two cannot be compared, "" where they can."""
    if golden.report.depth != report.depth:
        return f"{golden.file} was made with --depth {golden.report.depth}, this report with {report.depth}"
    if golden.report.redacted != report.redacted:
        ours, other = ("", "not ") if report.redacted else ("not ", "")
        return f"this report is {ours}redacted and {golden.file} is {other}"
    return ""


def selects(golden: Golden, probe: str) -> bool:
    """Tell whether any value of a probe may count."""
    return any(
        name.partition(".")[0] == probe or fnmatch.fnmatchcase(probe, name.partition(".")[0])
        for name in golden.names
    )


def listed(found: list[Difference]) -> str:
    """Return differences as one sentence, the first few of them."""
    from mlbackends.audit.policy.assertions import worded

    shown = [
        f"{each.name} was {'not there' if each.kept is None else worded(each.kept)} and is "
        f"{'not there' if each.seen is None else worded(each.seen)}"
        for each in found[:_MOST_SHOWN]
    ]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _selected(golden: Golden, report: Report) -> dict[str, Any]:
    wanted, unwanted = _matcher(golden.names), _matcher(golden.but)
    return {
        name: value
        for name, value in _values(report).items()
        if wanted(name) and not unwanted(name)
    }


def _matcher(globs: tuple[str, ...]) -> Any:
    forms = [fnmatch.translate(glob) for glob in globs]
    return re.compile("|".join(forms) if forms else r"(?!)").match


def _values(report: Report) -> dict[str, Any]:
    """Return every value that may be compared, by dotted name: no identity, nothing volatile."""
    found: dict[str, Any] = {}
    for name, probe in report.probes.items():
        found[f"{name}.presence"] = probe.presence and str(probe.presence)
        found[f"{name}.version"] = probe.version or None
        roles = _roles(name)
        for fact, value in probe.facts.items():
            role = roles.get(fact, "fact")
            if role == "fact":
                found[f"{name}.{fact}"] = value
            elif role == "metric":
                found[f"{name}.{fact}"] = _rounded(value)
        for number, device in enumerate(probe.devices):
            told = {field: getattr(device, field) for field in _DEVICE_FIELDS}
            told |= {f"facts.{fact}": value for fact, value in device.facts.items()}
            for field, value in told.items():
                if value not in (None, "", ()):
                    found[f"{name}.devices.{number}.{field}"] = msgspec.to_builtins(value)
    return {name: value for name, value in found.items() if value is not None}


def _roles(probe: str) -> dict[str, str]:
    if probe not in registry.names("probes"):
        return {}
    facts = getattr(registry.load("probes", probe), "FACTS", ())
    return {fact.name: fact.role for fact in facts}


def _rounded(value: Any) -> Any:
    """Return a number that wobbles with two digits."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(f"{value:.2g}") if is_number else value

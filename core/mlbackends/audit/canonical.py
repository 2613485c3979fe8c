"""Values as comparisons read them: without identities, paths from the environment or the home folder on."""

import re
from typing import Any

import msgspec

from mlbackends.base.patterns import pattern
from mlbackends.model.records import Device, Library, Presence, ProbeReport, Report

UNDETERMINED = "could not be determined"
Values = dict[str, Any]

_HOME = pattern(r"(?<![\w.~-])(?:/home/[^/\s:;,\"']+|/Users/[^/\s:;,\"']+|/root(?=/)|~(?=/))")
#: A device's name in a variable, and its placeholder in a redacted report.
_IDENTITY = pattern(r"redacted-\d+|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
_OF_THE_SYSTEM = ("", "/", "/usr", "/usr/local")
_OF_LIBRARY = ("soname", "version", "presence", "found_by", "owner", "wins")
_OF_DEVICE = ("name", "presence", "memory_bytes", "capability", "driver", "numa_node", "features")


def encoded(value: object) -> bytes:
    """Return a value as bytes, which are equal for equal values."""
    return msgspec.json.encode(value, order="deterministic")


def prefix_of(python: ProbeReport | None) -> str:
    """Return the folder of the Python environment, by the report of the probe `python`; "" without one."""
    return str(python.facts.get("prefix", "")) if python else ""


class Canonical:
    """Takes out of values what places and identities would add to a difference.

    prefix: the folder of the Python environment. depth: no presence is above it.
    """

    def __init__(self, prefix: str, depth: Presence) -> None:
        self.depth = depth
        # Everything is below /usr; a path there is clearer than one below "the environment".
        has_prefix = prefix not in _OF_THE_SYSTEM
        self._prefix = re.compile(rf"{re.escape(prefix.rstrip('/'))}(?![\w.-])") if has_prefix else None

    def plain(self, value: Any) -> Any:
        """Return a value without identities, its paths from the environment or the home folder on."""
        if isinstance(value, str):
            if "/" in value and self._prefix is not None:
                value = self._prefix.sub("PREFIX", value)
            value = _HOME.sub("~", value) if "/" in value else value
            return _IDENTITY.sub("*", value) if "-" in value else value
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        if isinstance(value, dict):
            return {self.plain(key): self.plain(item) for key, item in value.items()}
        return value

    def presence(self, presence: Presence | None) -> str:
        """Return a presence, no higher than the depth."""
        if presence is None:
            return UNDETERMINED
        return str(min(presence, self.depth, key=lambda each: each.level))

    def head(self, probe: ProbeReport) -> Values:
        """Return the presence of a probe, and its version if it has one."""
        version = {"version": probe.version} if probe.version else {}
        return {"presence": self.presence(probe.presence), **version}

    def fields(self, entry: Library | Device) -> Values:
        """Return the fields of a library or device that are not empty, and its facts."""
        names = _OF_LIBRARY if isinstance(entry, Library) else _OF_DEVICE
        values: Values = {name: getattr(entry, name) for name in names}
        values["presence"] = self.presence(entry.presence)
        values = {name: value for name, value in values.items() if value not in ("", None, ())}
        return self.plain(values | entry.facts)  # type: ignore[no-any-return]

    def title(self, entry: Library | Device) -> str:
        """Return what one that is alone is called."""
        if isinstance(entry, Library):
            return " ".join(filter(None, (str(self.plain(entry.path)), entry.version)))
        return entry.name or f"{entry.kind} {entry.index}"


class ComparedReport(Canonical):
    """One report that is compared to a depth.

    is_deeper: whether the report went to a higher level, so that values it alone has are not compared.
    """

    def __init__(self, report: Report, depth: Presence) -> None:
        super().__init__(prefix_of(report.probes.get("python")), depth)
        self.probes = report.probes
        self.is_deeper = report.depth.level > depth.level

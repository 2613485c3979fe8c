"""A collection adds envelopes one after another and keeps distinct configurations instead of reports.

Whatever is the same on many nodes is stored once: each distinct canonical form of a probe, the forms that
make up each distinct machine, and the machine of each node. Two collections can be merged, so that parts of a
fleet can be read in several places.
"""

import hashlib
import re
from collections import Counter
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from mlbackends.audit.canonical import Canonical, encoded, prefix_of
from mlbackends.audit.compare import TOLERANCE
from mlbackends.audit.reports import is_deeper
from mlbackends.base.errors import why_not
from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.fleet.fingerprint import Facts, canonical_facts, fingerprint, rounded
from mlbackends.fleet.reader import Head
from mlbackends.fleet.records import Figures, contents
from mlbackends.host.declared import facts_of
from mlbackends.model.audit import Status as CheckStatus
from mlbackends.model.fleet import Envelope, Fleet, Hazard, Status
from mlbackends.model.records import SCHEMA as REPORT_SCHEMA
from mlbackends.model.records import FactValue, Presence, ProbeReport

#: A fact with more distinct values than this differs on nearly every node, and is dropped.
MOST_VALUES = 1000
#: The most names of facts in the whole fleet; a node that exceeds it is an error.
MOST_FACTS = 100_000
MOST_PROBES = 500
#: The most commas and brackets in the JSON of one report, of which a real one has some thousand; and the most
#: names of figures in the whole fleet.
MOST_ITEMS = 200_000
MOST_FIGURES = 10_000
#: The most bytes of canonical forms in the whole fleet: their JSON, and _ENTRY_BYTES for each value.
MOST_BYTES = 128 << 20
_ENTRY_BYTES = 100
#: The reason for a missing report where nothing else is known.
MISSING = (Status.MISSING, "it sent nothing")
_REPORTS = REPORT_SCHEMA.partition("/")[0]
#: The section with the depth of a report and the tool that made it.
HEAD = "report"

_DURATION = bytes_pattern(rb',\s*"duration_seconds"\s*:\s*[0-9.eE+-]+\s*\}$')
#: The most sections whose canonical form is remembered.
_CACHED = 50_000
_PREFIXES = 64
_DEEPEST = 40
_LONGEST_NAME = 255
_LONGEST_ERROR = 200
_NOT_COMPARED = frozenset({"volatile", "uuid", "serial", "duration_seconds", "source"})
_UNFIT_FOR_NAMES = pattern(r"^-|[^\w.@:+-]")


class _Report(Struct):
    """A report whose probes are not decoded."""

    schema: str
    tool: str = ""
    depth: Presence = Presence.FOUND
    probes: dict[str, Raw] = {}


class Section(Struct):
    """One canonical form of one probe."""

    probe: str
    fingerprint: str
    facts: Facts


class Collection:
    """The reports of all nodes. expected: the names of nodes, their number, or None for unknown.

    silent: nodes without a report, with status and reason. repeated: reports after a node's first.
    unchecked: reports put together from pieces that have no checksum.
    """

    def __init__(self, expected: tuple[str, ...] | int | None = None) -> None:
        self.expected = expected
        self.silent: dict[str, tuple[Status, str]] = {}
        self.repeated: Counter[str] = Counter()
        self.garbled: Counter[str] = Counter()
        self.unchecked = 0
        self.varying: set[str] = set()
        #: By node, why its report is suspect although it is whole.
        self.flagged: dict[str, str] = {}
        #: The figures of records other than reports, by name and node.
        self.figures: dict[str, dict[str, float]] = {}
        #: The hazards of merged collections.
        self.hazards: list[Hazard] = []
        self.ranges: dict[str, dict[FactValue, tuple[float, float]]] = {}
        self.sections: dict[int, Section] = {}
        #: The numbers of a machine's sections, sorted; and its own number.
        self.machines: dict[tuple[int, ...], int] = {}
        #: The numbers of the sections of the report that was added last.
        self.latest: tuple[int, ...] = ()
        #: The number of each node's machine.
        self.nodes: dict[str, int] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        #: The numbers of sections by hashes of their JSON, and of their canonical form.
        self._texts: dict[int, int] = {}
        self._forms: dict[int, int] = {}
        self._prefixes: dict[bytes, str] = {}
        self._values: dict[str, set[int]] = {}
        self._shared: dict[bytes, FactValue] = {}
        #: The bytes of each section, and of all.
        self._sizes: dict[int, int] = {}
        self._size = 0
        self._unnamed = 0
        self._count = 0

    # ---- envelopes ---------------------------------------------------------------------------------

    def add(self, envelope: Envelope) -> str:
        """Add an envelope; return the node's name."""
        name = self._name(envelope.node)
        if envelope.status is not Status.OK:
            self._failed(name, envelope.status, envelope.error)
            return name
        try:
            if envelope.report is UNSET:
                raise ValueError("its envelope contains no report")  # noqa: TRY301
            sections, figures = self._sections_of(envelope.report)
        # Where the stack ends depends on the machine and on Python.
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            self._failed(name, Status.ERROR, why_not(error))
            return name
        if name in self.nodes:
            self.repeated[name] += 1
            return name
        self.latest = sections
        self._reported(name, self.machines.setdefault(sections, len(self.machines)))
        if envelope.error:
            self.flagged.setdefault(name, sentence(name, envelope.error))
        for figure, value in figures.items():
            self.figures.setdefault(figure, {})[name] = value
        return name

    def _name(self, name: str) -> str:
        if not name:
            self._unnamed += 1
            return f"unnamed-{self._unnamed}"
        return fit_name(name)

    def _reported(self, name: str, machine: int) -> None:
        self.nodes[name] = machine
        status, error = self.silent.pop(name, (Status.OK, ""))
        if status is not Status.OK:
            self._failed(name, status, error)

    def _failed(self, name: str, status: Status, error: str) -> None:
        if name not in self.nodes and name not in self.silent:
            self.silent[name] = (status, " ".join(error.split())[:_LONGEST_ERROR])
        elif name in self.nodes and error and status is not Status.GARBLED:
            self.flagged.setdefault(name, sentence(name, error))
        else:
            self.repeated[name] += 1

    # ---- reports -----------------------------------------------------------------------------------

    def _sections_of(self, data: Raw) -> tuple[tuple[int, ...], Figures]:
        """Return the numbers of a record's sections, and its figures. Raises ValueError for other records."""
        if sum(map(bytes(data).count, (b",", b"[", b"{"))) > MOST_ITEMS:
            raise ValueError(f"it has more than {MOST_ITEMS:,} values")
        schema = msgspec.json.decode(data, type=Head).schema
        if schema.startswith(_REPORTS) and schema != REPORT_SCHEMA:
            found = f"{schema[:80]!r}; this version reads {REPORT_SCHEMA!r}"
            raise ValueError(f"its schema is {found}")
        if schema != REPORT_SCHEMA:
            kind, facts, figures = contents(data)
            if len(self.figures) + len(figures.keys() - self.figures.keys()) > MOST_FIGURES:
                raise ValueError(f"with it the fleet would have more than {MOST_FIGURES:,} figures")
            return (self._number(kind, facts),), figures
        report = msgspec.json.decode(data, type=_Report)
        if not report.probes:
            raise ValueError("it has no probes")
        if len(report.probes) > MOST_PROBES:
            raise ValueError(f"it has {len(report.probes)} probes; the limit is {MOST_PROBES}")
        python = report.probes.get("python")
        prefix = self._prefix(bytes(python)) if python is not None else ""
        canonical = Canonical(prefix, report.depth)
        place = f"{report.depth}{prefix}"
        numbers = [self._section(name, bytes(data), canonical, place) for name, data in report.probes.items()]
        head: Facts = {f"{HEAD}.depth": str(report.depth), f"{HEAD}.tool": report.tool}
        numbers.append(self._number(HEAD, head))
        return tuple(sorted(numbers)), {}

    def _prefix(self, python: bytes) -> str:
        key = without_duration(python)
        if (prefix := self._prefixes.get(key)) is None:
            prefix = prefix_of(msgspec.json.decode(python, type=ProbeReport))
            if len(self._prefixes) >= _PREFIXES:
                self._prefixes.clear()
            self._prefixes[key] = prefix
        return prefix

    def _section(self, name: str, data: bytes, canonical: Canonical, place: str) -> int:
        """Return the number of a section. place: the depth and prefix on which its canonical form depends."""
        key = hash((name, place, without_duration(data)))
        if (number := self._texts.get(key)) is not None:
            return number
        digest, metrics = form_of(name, data)
        form = hash((name, place, digest, msgspec.json.encode(rounded(metrics))))
        if len(self._texts) >= _CACHED:
            self._texts.clear()
            self._forms.clear()
        if (number := self._forms.get(form)) is None:
            probe = msgspec.json.decode(data, type=ProbeReport)
            tables = [probe.facts, *(library.facts for library in probe.libraries)]
            if is_deeper([*tables, *(device.facts for device in probe.devices)], _DEEPEST):
                raise ValueError(f"its facts are nested more than {_DEEPEST} deep")
            number = self._number(name, canonical_facts(name, probe, canonical))
            self._forms[form] = number
        for fact, value in metrics.items():
            self._ranges_in(f"{name}.{fact}", value)
        self._texts[key] = number
        return number

    def _ranges_in(self, name: str, value: Any) -> None:
        """Extend the ranges of the numbers in a metric; those of a table have its name and their key."""
        if isinstance(value, list):
            for item in value:
                self._ranges_in(name, item)
        elif isinstance(value, dict):
            for key, item in value.items():
                self._ranges_in(f"{name}.{key}", item)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self._range(name, rounded(value), value, value)

    def _range(self, name: str, value: FactValue, least: float, most: float) -> None:
        """Extend the range of measured values that were rounded to a value."""
        ranges = self.ranges.get(name, {})
        if not ranges and len(self.ranges) < MOST_FIGURES:
            self.ranges[name] = ranges
        if value in ranges:
            before = ranges[value]
            ranges[value] = (min(before[0], least), max(before[1], most))
        elif len(ranges) <= MOST_VALUES:
            ranges[value] = (least, most)

    def _number(self, probe: str, facts: Facts) -> int:
        """Return the number of a canonical form, which is stored if it is new."""
        while True:
            facts = {name: value for name, value in facts.items() if name not in self.varying}
            digest = fingerprint(facts)
            if (number := self._numbers.get((probe, digest))) is not None:
                return number
            new = sum(name not in self._values for name in facts)
            if len(self._values) + new > MOST_FACTS:
                raise ValueError(f"with it the fleet would have more than {MOST_FACTS:,} facts")
            texts = {name: encoded(value) for name, value in facts.items()}
            size = sum(
                len(text) + _ENTRY_BYTES * (1 + text.count(b",") + text.count(b"["))
                for text in texts.values()
            )
            if self._size + size > MOST_BYTES:
                raise ValueError(f"with it the fleet would need more than {MOST_BYTES >> 20} MiB")
            for name, text in texts.items():
                values = self._values.setdefault(name, set())
                values.add(hash(text))
                if len(values) > MOST_VALUES:
                    self._drop(name)
            if not self.varying.isdisjoint(facts):
                continue
            facts = {name: self._shared.setdefault(texts[name], facts[name]) for name in facts}
            self._count += 1
            self.sections[self._count] = Section(probe, digest, facts)
            self._numbers[probe, digest] = self._count
            self._sizes[self._count] = size
            self._size += size
            return self._count

    def _drop(self, name: str) -> None:
        """Remove a fact from every canonical form; forms that are equal without it become one."""
        self.varying.add(name)
        self._values[name] = set()
        self._texts.clear()
        self._forms.clear()
        moved: dict[int, int] = {}
        for number, section in list(self.sections.items()):
            if name not in section.facts:
                continue
            del self._numbers[section.probe, section.fingerprint]
            facts = {key: value for key, value in section.facts.items() if key != name}
            digest = fingerprint(facts)
            other = self._numbers.setdefault((section.probe, digest), number)
            if other == number:
                self.sections[number] = Section(section.probe, digest, facts)
            else:
                moved[number] = other
                del self.sections[number]
                self._size -= self._sizes.pop(number)
        machines: dict[tuple[int, ...], int] = {}
        renamed = {}
        for sections, machine in self.machines.items():
            key = tuple(sorted(moved.get(number, number) for number in sections))
            renamed[machine] = machines.setdefault(key, len(machines))
        self.machines = machines
        self.nodes = {node: renamed[machine] for node, machine in self.nodes.items()}

    def real(self, name: str, value: Any) -> Any:
        """Return the smallest value that was measured of a rounded metric; other values unchanged.

        Where the greatest one is not equal within the tolerance, return both.
        """
        if isinstance(value, list):
            return [self.real(name, item) for item in value]
        if isinstance(value, dict):
            return {key: self.real(f"{name}.{key}", item) for key, item in value.items()}
        ranges = self.ranges.get(name, {})
        if not isinstance(value, int | float | str) or value not in ranges:
            return value
        return ranges[value][0] if are_near(*ranges[value]) else ranges[value]

    def is_near(self, name: str, value: Any, others: "Collection", other: Any) -> bool:
        """Return whether the measured values of two rounded metrics are equal within the tolerance.

        other: the second one, of the collection `others`.
        """
        if isinstance(value, list) and isinstance(other, list):
            pairs = zip(value, other, strict=False)
            return len(value) == len(other) and all(self.is_near(name, a, others, b) for a, b in pairs)
        if isinstance(value, dict) and isinstance(other, dict):
            return value.keys() == other.keys() and all(
                self.is_near(f"{name}.{key}", item, others, other[key]) for key, item in value.items()
            )
        if value == other or not all(isinstance(one, int | float) for one in (value, other)):
            return bool(value == other)
        ends = (self.ranges.get(name, {}).get(value), others.ranges.get(name, {}).get(other))
        return all(ends) and are_near(*(end for pair in ends if pair for end in pair))

    # ---- several collections -----------------------------------------------------------------------

    def merge(self, fleet: Fleet) -> None:
        """Merge another collection into this one. Raises ValueError where it is incomplete."""
        for name in fleet.varying:
            if name not in self.varying:
                self._drop(name)
        for configuration in fleet.configurations:
            numbers = []
            for probe, digest in configuration.sections.items():
                facts = fleet.sections.get(probe, {}).get(digest)
                if facts is None:
                    raise ValueError(f"it has no section {probe} {digest}")
                numbers.append(self._number(probe, facts))
            machine = self.machines.setdefault(tuple(sorted(numbers)), len(self.machines))
            for node in map(self._name, configuration.nodes):
                if node in self.nodes:
                    self.repeated[node] += 1
                    continue
                self._reported(node, machine)
        for silent in fleet.silent:
            for node in silent.nodes if silent.status is not Status.MISSING else ():
                self._failed(self._name(node), silent.status, silent.error)
        for name, values in fleet.figures.items():
            self.figures[name] = {**values, **self.figures.get(name, {})}
        for hazard in fleet.hazards:  # whether one is accepted is decided each time
            check = replace(hazard.check, status=CheckStatus.FAILED)
            self.hazards.append(Hazard(check, tuple(map(self._name, hazard.nodes))))
        self.flagged = {**fleet.flagged, **self.flagged}
        self.repeated.update(fleet.repeated)
        self.garbled.update(fleet.garbled)
        self.unchecked += fleet.unchecked
        for name, ranges in fleet.ranges.items():
            for text, (least, most) in ranges.items():
                value = msgspec.json.decode(text)
                if isinstance(value, dict | list):
                    raise ValueError(f"the ranges of {name[:80]} are not of numbers")  # noqa: TRY004
                self._range(name, value, least, most)
        self.expect(fleet.expected)

    def expect(self, expected: tuple[str, ...] | int | None) -> None:
        """Add nodes to those that are expected: their names, or their number."""
        if isinstance(self.expected, tuple) and isinstance(expected, tuple):
            self.expected = tuple(dict.fromkeys((*self.expected, *expected)))
        elif isinstance(self.expected, int) and isinstance(expected, int):
            self.expected += expected
        elif self.expected is None:
            self.expected = expected

    def all_silent(self) -> dict[tuple[Status, str], list[str]]:
        """Return the nodes without a report by reason, including expected nodes from which nothing came.

        A reason of several nodes has NODE in place of their names.
        """
        alike: dict[tuple[Status, str], list[str]] = {}
        for node, (status, error) in self.silent.items():
            alike.setdefault((status, sentence(node, error)), []).append(node)
        found: dict[tuple[Status, str], list[str]] = {}
        for why, nodes in alike.items():
            found.setdefault(why if nodes[1:] else self.silent[nodes[0]], []).extend(nodes)
        names = self.expected if isinstance(self.expected, tuple) else ()
        known = {*self.nodes, *self.silent}
        if missing := [name for name in map(self._name, names) if name not in known]:
            found[MISSING] = missing
        return found


def fit_name(name: str) -> str:
    """Return a node's name with "?" for what no name has."""
    return _UNFIT_FOR_NAMES.sub("?", name)[:_LONGEST_NAME]


def sentence(name: str, error: str) -> str:
    """Return an error on one line without the node's name, so that those of many nodes are equal."""
    own = rf"(?<![\w.-]){re.escape(name)}(?![\w-])"
    return re.sub(own, "NODE", " ".join(error.split()))[:_LONGEST_ERROR]


def are_near(*numbers: float) -> bool:
    """Return whether measured values of a metric count as equal."""
    return max(numbers) - min(numbers) <= TOLERANCE * max(map(abs, numbers))


def without_duration(section: bytes) -> bytes:
    """Return a probe's report as JSON without how long the probe took."""
    return _DURATION.sub(b"", section)


@cache
def roles_of(probe: str) -> dict[str, str]:
    """Return the facts of a probe whose role is not "fact", with their roles."""
    return {name: fact.role for name, fact in facts_of(probe).items() if fact.role != "fact"}


def form_of(name: str, data: bytes) -> tuple[bytes, dict[str, FactValue]]:
    """Return a digest of a probe's report without values that differ between equal machines, and its metrics.

    Two reports with the same digest and, rounded, the same metrics have the same canonical form.
    """
    parts = msgspec.json.decode(data, type=dict[str, Raw])
    digest = hashlib.blake2b(digest_size=16)
    metrics: dict[str, FactValue] = {}
    roles = roles_of(name)
    facts = parts.pop("facts", None)
    devices = parts.pop("devices", None)
    for fact, raw in (msgspec.json.decode(facts, type=dict[str, Raw]) if facts else {}).items():
        role = roles.get(fact, "fact")
        if role == "metric":
            metrics[fact] = msgspec.json.decode(raw)
        elif role == "fact":
            digest.update(b"%b\0%b\0" % (fact.encode(), bytes(raw)))
    for device in msgspec.json.decode(devices, type=list[dict[str, Raw]]) if devices else ():
        digest.update(b"\1")
        for field, raw in device.items():
            if field not in _NOT_COMPARED:
                digest.update(b"%b\0%b\0" % (field.encode(), bytes(raw)))
    for field, raw in parts.items():
        if field not in _NOT_COMPARED:
            digest.update(b"\2%b\0%b\0" % (field.encode(), bytes(raw)))
    return digest.digest(), metrics

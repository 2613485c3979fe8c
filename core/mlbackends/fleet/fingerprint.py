"""The canonical form of a probe's report, and its fingerprint.

Equal machines have equal forms: volatile values and those that identify the machine are left out, metrics are
rounded, lists are sorted, devices and copies of a library are counted, and paths in the environment or the
home folder begin there. The first part of a fingerprint, "1:", is the version of this form; fingerprints of
different versions cannot be compared.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from mlbackends.audit.canonical import UNDETERMINED, Canonical, encoded, prefix_of
from mlbackends.host.declared import facts_of
from mlbackends.model.records import IMPORTED, OPENED, FactValue, Library, Presence, ProbeReport, Report
from mlbackends.survey.dotted import is_certain

VERSION = 1
#: The number of leading bits of a metric that count: values within 3 % are mostly equal.
_METRIC_BITS = 5

#: The most values of all copies of one library.
_MOST_CELLS = 200_000

Facts = dict[str, FactValue]


def fingerprints(report: Report) -> dict[str, str]:
    """Return the fingerprint of each probe's report, by the probe's name."""
    canonical = Canonical(prefix_of(report.probes.get("python")), report.depth)
    return {
        name: fingerprint(canonical_facts(name, probe, canonical)) for name, probe in report.probes.items()
    }


def whole(fingerprints: Mapping[str, str]) -> str:
    """Return the fingerprint of a machine from those of its probes."""
    return fingerprint(sorted(fingerprints.items()))


def fingerprint(form: Any) -> str:
    """Return the fingerprint of a canonical form: the version, a colon, and 64 bits of BLAKE2b in hex."""
    data = encoded(form)
    return f"{VERSION}:{hashlib.blake2b(data, digest_size=8).hexdigest()}"


def canonical_facts(name: str, probe: ProbeReport, canonical: Canonical) -> Facts:
    """Return a probe's report as values by dotted name; see the head of this module.

    `nvidia.devices` is how many there are, and a field of theirs has a count for each value:
    {"16": 7, "8": 1}. Of several copies of a library a field is a list, the copy that wins first.
    """
    if not is_certain(probe):
        return {f"{name}.presence": UNDETERMINED}
    facts: Facts = {f"{name}.{field}": value for field, value in canonical.head(probe).items()}
    declared = facts_of(name)
    for fact, value in probe.facts.items():
        role = declared[fact].role if fact in declared else "fact"
        if role == "metric":
            facts.update(leaves(f"{name}.{fact}", rounded(value)))
        elif role == "fact":
            facts.update(leaves(f"{name}.{fact}", canonical.plain(value)))
    facts.update((f"{name}.warnings.{warning.code}", True) for warning in probe.warnings)
    by_soname: dict[str, list[Library]] = {}
    for library in probe.libraries:
        by_soname.setdefault(library.soname or library.path.rpartition("/")[2], []).append(library)
    for soname, copies in by_soname.items():
        copies.sort(key=lambda library: (not library.wins, canonical.plain(library.path)))
        prefix = f"{name}.libraries[{soname}]"
        # The values of one copy, and of several a list for each name.
        columns: dict[str, list[Any]] = {}
        for at, library in enumerate(copies):
            for field, value in leaves(prefix, canonical.fields(library)):
                columns.setdefault(field, [None] * len(copies))[at] = value
            if len(columns) * len(copies) > _MOST_CELLS:
                raise ValueError(f"its {len(copies):,} copies of {soname[:80]} have too many fields")
        facts.update((field, values[0] if len(copies) == 1 else values) for field, values in columns.items())
    if probe.devices:
        facts[f"{name}.devices"] = len(probe.devices)
        counts: dict[str, Counter[str]] = {}
        for device in probe.devices:
            for field, value in dict(leaves(f"{name}.devices", canonical.fields(device))).items():
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                counts.setdefault(field, Counter())[text] += 1
        facts.update((field, dict(values)) for field, values in counts.items())
    return facts


def of_all_devices(facts: Facts) -> Facts:
    """Return facts with the value itself where all devices of a probe have the same, not its count.

    So a machine that has lost a device does not differ in every field of the others.
    """
    counts = {f"{name}.": value for name, value in facts.items() if name.endswith(".devices")}
    return facts | {
        name: next(iter(value))
        for name, value in facts.items()
        if isinstance(value, dict)
        and [*value.values()] == [counts.get(f"{name.partition('.devices.')[0]}.devices.")]
    }


class Depth(NamedTuple):
    """How far a probe was asked. level: of the report's depth. is_imported: its package, not only opened."""

    level: int
    is_imported: bool


def to_depth(facts: Facts, depth: Depth) -> Facts:
    """Return a probe's facts with no presence, and no outcome of an import, beyond those of a depth."""
    level = min(depth.level, Presence.USABLE.level if depth.is_imported else Presence.LOADABLE.level)
    words = {str(presence): str([*Presence][level]) for presence in Presence if presence.level > level}
    words |= {} if depth.is_imported else {IMPORTED: OPENED}
    found = dict(facts)
    for name, value in facts.items():
        if not name.endswith(".presence") and ".imports." not in name:
            continue
        if isinstance(value, dict):  # of devices
            counts: Counter[str] = Counter()
            for text, count in value.items():
                counts[words.get(text, text)] += count
            found[name] = dict(counts)
        elif isinstance(value, list):  # of several copies of a library
            found[name] = [words.get(str(text), text) for text in value]
        else:
            found[name] = words.get(str(value), value)
    return found


def rounded(value: Any) -> Any:
    """Return a metric with every number in it rounded to its leading bits."""
    if isinstance(value, list):
        return _sorted(rounded(item) for item in value)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    is_float = isinstance(value, float)
    if abs(value) < 1 << _METRIC_BITS or (is_float and not math.isfinite(value)):
        return float(f"{value:.2g}") if is_float else value
    number = round(value)
    shift = max(0, abs(number).bit_length() - _METRIC_BITS)
    return ((number + (1 << shift >> 1)) >> shift) << shift


def leaves(name: str, value: Any) -> Iterator[tuple[str, FactValue]]:
    """Yield a value by its name; of a table each value by its own, and of a list its sorted members."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(f"{name}.{key}", item)
    else:
        yield name, _sorted(value) if isinstance(value, list) else value


def _sorted(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=encoded)

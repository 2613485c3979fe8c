"""Run doctor on every recorded machine and compare its alarms with alarms.json: python tests/hosts/alarms.py.

alarms.json has a sentence for each alarm, by machine and code: why it is true of that machine, from its
about.txt and its files. The exit code is 1 if an alarm has no sentence, or a sentence no alarm. The notes
are the maintainers' own; they show that each alarm was looked at, not that it is right.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mlbackends.audit import catalogue
from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.base import registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlbackends.model.audit import Severity

HOSTS = Path(__file__).resolve().parent
REASONS = HOSTS / "alarms.json"
#: In alarms.json the environment that the tests run in: errors that the machine below it may cause.
OWN = "-"


class Alarm(NamedTuple):
    """A code that sounds on a machine. times: how many symptoms it has there; severity: the worst."""

    host: str
    code: str
    severity: Severity
    times: int


def reasons() -> dict[str, dict[str, str]]:
    """Return the sentences, by machine and code."""
    told: dict[str, dict[str, str]] = json.loads(REASONS.read_text(encoding="utf-8"))
    return told


def names() -> list[str]:
    """Return the names of the recorded machines."""
    return sorted(path.stem for path in HOSTS.glob("*.machine"))


def alarms() -> list[Alarm]:
    """Return every alarm on every recorded machine, by machine, the worst first."""
    found = []
    for host in names():
        failed = examine(report_of(str(HOSTS / f"{host}.machine")), subject=host).failed()
        times = Counter(check.code for check in failed)
        worst: dict[str, Severity] = {}
        for check in failed:
            worst.setdefault(check.code, check.severity)
        found += [Alarm(host, code, severity, times[code]) for code, severity in worst.items()]
    return found


def faults(found: list[Alarm], told: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield each alarm without a sentence, and each sentence without an alarm."""
    sounding = {(alarm.host, alarm.code) for alarm in found}
    for host, code in sorted(sounding):
        if not told.get(host, {}).get(code, "").strip():
            yield f"{host}: {code} has no sentence in alarms.json"
    for host, codes in told.items():
        for code in codes:
            if host == OWN and code not in catalogue.codes():
                yield f"{host}: {code} is no hazard"
            if host != OWN and (host, code) not in sounding:
                yield f"{host}: {code} has a sentence in alarms.json and is no alarm"


def main() -> int:
    """Print what has no sentence, or the number of alarms."""
    found = alarms()
    wrong = list(faults(found, reasons()))
    print("\n".join(wrong) or f"{sum(alarm.times for alarm in found)} alarms, each with a reason")
    return 1 if wrong else 0


if __name__ == "__main__":
    registry.GROUPS.clear()  # only our own hazards, not what other distributions add
    sys.exit(main())

"""Hold doctor to every recorded machine, and write docs/doctor-alarms.md: ``python tests/hosts/alarms.py``.

``--write`` writes the page; ``--check`` says whether it is stale; without either it prints the numbers.
Each alarm needs a sentence in alarms.json, by machine and code: why it is true of that machine, from
what its about.txt and its files say. A sentence that begins with "false alarm:" says that it is not,
and counts. The end is 1 where an alarm has no sentence, or a sentence no alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mlbackends.audit import hazard
from mlbackends.audit.reports import report_of
from mlbackends.audit.runner import examine
from mlbackends.base import registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlbackends.model.audit import Severity

HOSTS = Path(__file__).resolve().parent
REASONS = HOSTS / "alarms.json"
PAGE = HOSTS.parents[1] / "docs" / "doctor-alarms.md"
#: In alarms.json the environment that the tests run in: errors that the machine below it may cause.
OWN = "-"
_FALSE = "false alarm:"


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
            if host == OWN and code not in hazard.codes():
                yield f"{host}: {code} is no hazard"
            if host != OWN and (host, code) not in sounding:
                yield f"{host}: {code} has a sentence in alarms.json and is no alarm"


def page(found: list[Alarm], told: dict[str, dict[str, str]]) -> str:
    """Return the page in Markdown."""
    hosts = names()
    in_all = sum(alarm.times for alarm in found)
    wrong = sum(alarm.times for alarm in found if not _is_justified(alarm, told))
    quiet = [host for host in hosts if host not in {alarm.host for alarm in found}]
    lines = [
        "<!-- Made by tests/hosts/alarms.py from tests/hosts/alarms.json; change that. -->",
        "# What doctor says of the recorded machines",
        "",
        f"{len(hazard.codes())} hazards, held to {len(hosts)} recorded machines.",
        "Each alarm was weighed by hand: is it true of that machine?",
        "",
        "| machines | alarms | justified | false |",
        "| ---: | ---: | ---: | ---: |",
        f"| {len(hosts)} | {in_all} | {in_all - wrong} | {wrong} |",
        "",
        f"No alarm on {len(quiet)} of them: {', '.join(quiet)}.",
    ]
    for host in hosts:
        of_host = [alarm for alarm in found if alarm.host == host]
        if of_host:
            lines += ["", f"## {host}", "", "| severity | code | times | why it is true |"]
            lines += ["| --- | --- | ---: | --- |", *(_row(alarm, told) for alarm in of_host)]
    lines += [
        "",
        "## The environment that the tests run in",
        "",
        "A test lets doctor look at it, and takes no error. What the machine below it may cause is excepted:",
        "",
        "| code | why it may sound |",
        "| --- | --- |",
        *(f"| {code} | {_cell(why)} |" for code, why in sorted(told.get(OWN, {}).items())),
        "",
    ]
    return "\n".join(lines)


def _row(alarm: Alarm, told: dict[str, dict[str, str]]) -> str:
    why = told.get(alarm.host, {}).get(alarm.code, "")
    return f"| {alarm.severity} | {alarm.code} | {alarm.times} | {_cell(why)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _is_justified(alarm: Alarm, told: dict[str, dict[str, str]]) -> bool:
    why = told.get(alarm.host, {}).get(alarm.code, "")
    return bool(why) and not why.startswith(_FALSE)


def main(arguments: list[str] | None = None) -> int:
    """Write, check or print."""
    parser = argparse.ArgumentParser(description="Hold doctor to every recorded machine.")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--write", action="store_true", help="write docs/doctor-alarms.md")
    modes.add_argument("--check", action="store_true", help="exit 1 where that page is stale")
    options = parser.parse_args(arguments)
    found, told = alarms(), reasons()
    wrong = list(faults(found, told))
    text = page(found, told)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    elif options.check and (not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text):
        wrong.append("docs/doctor-alarms.md is stale: python tests/hosts/alarms.py --write")
    print("\n".join(wrong or text.splitlines()[6:9]))
    return 1 if wrong else 0


if __name__ == "__main__":
    registry.GROUPS.clear()  # the page is about our own hazards, not what other distributions add
    sys.exit(main())

"""What is judged: a saved report, a recorded machine, or the live one."""

import os
import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from mlbackends.base import mounts
from mlbackends.base.errors import BadInput, why_not
from mlbackends.base.tables import table
from mlbackends.host.files import named_bytes
from mlbackends.host.host import Host
from mlbackends.host.redaction import Names, names_of, redacted
from mlbackends.model.records import SCHEMA, Presence, Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlbackends.survey import Progress

LIVE = "-"
#: No saved report is larger than this, in bytes; a real one has some hundred thousand.
REPORT_LIMIT = 64 << 20
_DEEPEST = 40
_HEAD_BYTES = 4096
_HINT = "`backends info --format json --output FILE` or `backends snapshot FILE.json` writes one"


class _Head(Struct):
    """A report's own description; read first, to distinguish another file from a broken report."""

    schema: str = ""


def report_of(
    subject: str = LIVE,
    *,
    names: "Sequence[str]" = (),
    python: str = "",
    pid: int | None = None,
    depth: Presence = Presence.USABLE,
    timeout: float = 5.0,
    redact: bool = True,
    packages: Literal["imported", "opened"] = "imported",
    progress: "Progress | None" = None,
) -> Report:
    """Return the report of a subject: the live machine, "-", a recorded one, or a file with a report.

    names: the probes to ask, all by default; a saved report keeps what it has. python: the interpreter
    whose environment is looked at, "" for our own. pid: a running process. packages: whether
    they are imported, as `survey` has it. These, depth and timeout concern the live machine alone. redact:
    whether what names the machine or its user is replaced.
    Raises BadInput, with the file and what is wrong with it.
    """
    if subject != LIVE and not mounts.call(_is_machine, subject, seconds=timeout):
        report = read_report(subject)
        return redacted(report, Names()) if redact and not report.redacted else report
    from mlbackends.host.interpreter import of_process, query
    from mlbackends.survey import survey

    live = subject == LIVE
    described = query(python, timeout) if python else of_process(pid, timeout) if pid else None
    host = Host("/" if live else subject, pid=pid, python=described, timeout=timeout)
    depth = depth if live else Presence.FOUND
    report = survey(names, host, depth, timeout=timeout, packages=packages, progress=progress)
    return redacted(report, names_of(host)) if redact else report


def _is_machine(subject: str) -> bool:
    """Return whether a path is a folder or an archive; a pipe contains a report."""
    if not os.path.isfile(subject):
        return os.path.isdir(subject)
    from mlbackends.host.archive import is_archive

    return is_archive(subject)


def reports_of(
    before: str,
    after: str,
    *,
    pythons: "Sequence[str]" = (),
    timeout: float = 5.0,
    progress: "Progress | None" = None,
) -> tuple[Report, Report]:
    """Return the reports of two subjects that are to be compared.

    pythons: interpreters whose environments are inspected; see `environments`. The live machine is
    surveyed to the depth of the other report, so that the depth does not differ.
    Raises BadInput as `report_of` does.
    """
    subjects = tuple(zip((before, after), environments(before, after, pythons), strict=True))
    reports = {subject: report_of(subject[0]) for subject in subjects if subject[0] != LIVE}
    depth = next((report.depth for report in reports.values()), Presence.USABLE)
    for subject in subjects:
        if subject not in reports:
            reports[subject] = report_of(
                LIVE,
                python=subject[1],
                depth=depth,
                timeout=timeout,
                packages="opened",
                progress=progress,
            )
    return reports[subjects[0]], reports[subjects[1]]


def environments(before: str, after: str, pythons: "Sequence[str]") -> tuple[str, str]:
    """Return the interpreter that describes each subject, "" for our own environment.

    One interpreter describes the live subject, the second where both are live; two describe both.
    Raises BadInput where there are more interpreters than live subjects.
    """
    live = [before == LIVE, after == LIVE]
    if "" in pythons or len(pythons) > sum(live):
        times = "once" if len(pythons) == 1 else f"{len(pythons)} times"
        are = ("none of the two is", "one of the two is", "both are")[sum(live)]
        raise BadInput(
            f"--python was given {times}, and {are} {LIVE}",
            f"write {LIVE} for the live machine, which --python describes",
        )
    if all(live) and len(pythons) == 1:
        return "", pythons[0]
    remaining = iter(pythons)
    first, second = (next(remaining, "") if is_live else "" for is_live in live)
    return first, second


def name_of(subject: str, python: str = "") -> str:
    """Return what people call a subject. python: the interpreter that describes the live one."""
    return (python or "this machine") if subject == LIVE else subject


def read_report(path: str) -> Report:
    """Read a report that `backends info --format json` wrote. Raises BadInput."""
    data = named_bytes(path, REPORT_LIMIT, "report", hint=_HINT)
    if what := recognised(data):
        is_pasted = "trace" not in what and "program" not in what
        hint = "`backends doctor --from FILE` reads what tools print" if is_pasted else _HINT
        raise BadInput(f"{path} is {what}, not a report of backends", hint)
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.schema.partition("/")[0] != SCHEMA.partition("/")[0]:
            raise BadInput(f"{path} is not a report: its schema is {head.schema[:80]!r}", _HINT)
        if head.schema != SCHEMA:
            message = f"{path} has the schema {head.schema[:80]!r}; this version reads {SCHEMA!r}"
            raise BadInput(message, "use the version of backends that wrote it")
        report = msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not a report: {why_not(error)}", _HINT) from None
    facts: list[Any] = []
    for probe in report.probes.values():
        facts += [probe.facts, *(library.facts for library in probe.libraries)]
        facts += [table for device in probe.devices for table in (device.facts, device.volatile)]
    if is_deeper(facts, _DEEPEST + 1):
        raise BadInput(f"{path} is not a report: its facts are nested more than {_DEEPEST} deep", _HINT)
    return report


def recognised(data: bytes) -> str:
    """Return what other tool's output a file begins like, "" if it is none of other_tools.json."""
    head = data[:_HEAD_BYTES].decode("utf-8", "replace")
    tools: dict[str, str] = table("audit/other_tools")
    return next((what for what, signs in tools.items() if re.search(signs, head)), "")


def is_deeper(value: Any, most: int) -> bool:
    """Return whether a value is nested so deeply that walking it could exhaust the stack."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
    return bool(level)

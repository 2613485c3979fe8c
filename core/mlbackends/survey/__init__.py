"""Ask every probe, and merge what it finds with what its libraries return into one report.

`find` runs in this process and reads files. The libraries that it found are opened and used in a child: see
`mlbackends.isolation.client`. The packages that it found are imported: see `package_check` there. A probe
that fails is a failure in the report; the others still run.

The child is started first, and comes up while probes search. The libraries that take longest to open are
requested first. When all are requested, `meanwhile` is called: the command imports what renders its page.
"""

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from mlbackends.base import registry
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.quantities import utc
from mlbackends.base.reasons import shared_codes
from mlbackends.base.version import __version__
from mlbackends.base.writable import clean
from mlbackends.host.host import Host
from mlbackends.host.python.packages import distribution, owners_of
from mlbackends.host.python.wheel_files import damage
from mlbackends.host.redaction import without_credentials
from mlbackends.model.records import (
    SCHEMA,
    Failure,
    Finding,
    Library,
    Presence,
    ProbeReport,
    Report,
)
from mlbackends.survey.finding import found
from mlbackends.survey.merging import merged

#: Probes that read many files, and open none: the child works meanwhile.
_FOUND_LAST = ("loading",)
#: Seconds that a library has for each answer. A driver whose GPU sleeps needs 1.5 or more.
TIMEOUT = 5.0

if TYPE_CHECKING:
    from mlbackends.isolation.client import Child
    from mlbackends.isolation.protocol import Job, Reply, Request

#: Called with the number of libraries that have answered, the number of all, and a probe still missing.
Progress = Callable[[int, int, str], None]


def probe_names() -> tuple[str, ...]:
    """Return the names of all probes, including those of other distributions."""
    return registry.names(registry.PROBES)


def all_codes() -> dict[str, str]:
    """Return every reason code with its sentence, including those that probes declare."""
    codes = shared_codes()
    for name in probe_names():
        codes.update(getattr(registry.load(registry.PROBES, name), "CODES", {}))
    return codes


def survey(
    names: Sequence[str] = (),
    host: Host | None = None,
    depth: Presence = Presence.USABLE,
    *,
    timeout: float = TIMEOUT,
    computing: Collection[str] = (),
    packages: Literal["imported", "opened", "found"] = "imported",
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Report:
    """Run the named probes, all of them by default, up to a presence level.

    On a recorded host nothing can be opened, so the depth is always FOUND. So it is for another process;
    libraries that it has mapped are opened for their version only, and only if the process is this user's.
    timeout: seconds for each answer of a library. computing: probes whose package computes, at USABLE.
    packages: what becomes of all other packages there: "imported", which takes seconds; "opened", which
    opens their extension modules, and imports what does not open or lacks a requirement; or "found".
    meanwhile: called once while libraries are queried, if any are.
    Raises UnknownName, with the nearest name, and BadInput for a process that may not be inspected.
    """
    start = time.perf_counter()
    host = host or Host(timeout=timeout)
    if host.pid is not None and not host.mapped_files():
        raise BadInput(f"what process {host.pid} has mapped cannot be read")
    opens = depth is not Presence.FOUND and not host.root and host.is_ours
    depth = depth if host.is_live and host.pid is None else Presence.FOUND
    requested = names or probe_names()
    search = _Search(host, depth, timeout, opens, packages, computing)
    replies = search.opened(requested, not names, progress, meanwhile)
    modules, findings, reports = search.modules, search.findings, search.reports
    for name, finding in findings.items():
        theirs = [job for job in search.jobs if job.probe == name and job.id in replies]
        own = {job.library.path: replies[job.id] for job in theirs}
        if host.pid is not None:
            # The version that a copy reports; its other answers concern our child.
            answers = {path: reply.answer for path, reply in own.items() if reply.answer}
            libraries = [
                replace(library, version=answers[library.path].library.version or library.version)
                if library.path in answers
                else library
                for library in finding.libraries
            ]
            finding, own = replace(finding, libraries=tuple(libraries)), {}
        has_check = bool(own and finding.imports and registry.check_of(name, modules[name]))
        total = search.seconds[name] + sum(reply.seconds for reply in own.values())
        reports[name] = replace(
            merged(name, finding, own, depth, has_check),
            source=_source(modules[name]),
            duration_seconds=round(total, 6),
        )
    if depth is Presence.USABLE and opens and host.python.get("executable"):
        from mlbackends.isolation.package_check import imported, left_out

        def waiting(name: str) -> None:
            if progress is not None:
                progress(len(replies), len(search.jobs) + 1, name)

        chosen = {
            name: finding for name, finding in findings.items() if packages == "imported" or name in computing
        }
        chosen |= {name: findings[name] for name in search.lacking}  # an import shows whether it needs that
        for name, finding in findings.items() if packages == "opened" else ():
            if name not in reports or name in chosen or not (finding.imports and owners_of(finding.facts)):
                continue
            reply = replies.get(search.extensions.get(name, -1))
            if name not in search.extensions:
                reports[name] = left_out(name, reports[name])
            elif reply and reply.presence is Presence.LOADABLE and not reply.reason:
                reports[name] = left_out(name, reports[name], finding.imports[0])
            else:
                chosen[name] = finding
        reports |= imported(reports, modules, chosen, host, timeout, computing, waiting)
    for name, finding in findings.items():
        if hasattr(modules[name], "derive"):
            own_report = reports[name]
            try:
                facts = modules[name].derive(finding.facts, reports)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001  one broken probe must not cost the others
                reports[name] = _failed(modules[name], error, own_report.duration_seconds)
                continue
            reports[name] = _derived(modules[name], own_report, facts)
    report = Report(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        depth=depth,
        root=clean(host.root or "/"),
        created=utc(),
        duration_seconds=round(time.perf_counter() - start, 6),
        redacted=False,
        probes={name: reports[name] for name in requested},
    )
    return without_credentials(report)


def _lacking(findings: Mapping[str, Finding], host: Host) -> list[str]:
    """Return the probes whose package lacks a requirement, or has other Python files than were installed."""
    packages: dict[str, Any] = findings.get("packages", Finding()).facts
    lacking = {row["package"] for row in packages.get("unmet", [])}
    return [
        name
        for name, finding in findings.items()
        for owner in owners_of(finding.facts)
        if owner in lacking or ((dist := distribution(host, owner)) and damage(host, dist))
    ]


def report(
    *names: str,
    depth: Presence | str = Presence.USABLE,
    deep: bool = False,
    timeout: float = TIMEOUT,
) -> Report:
    """Return what `backends info` shows of this machine: all probes, or the named ones.

    mlbackends.report("cpu").probes["cpu"].facts["cores"] is a value; msgspec.json.encode of the report is
    what `backends info --format json --no-redact` prints. depth: "found" reads files only, "loadable" opens
    libraries, "usable" computes with them, in child processes; deep: it imports the packages, too, which
    takes seconds. timeout: seconds for each answer of a library.
    Raises UnknownName, with the nearest name, and BadInput for a depth that does not exist.
    """
    levels = tuple(str(level) for level in Presence if level is not Presence.ABSENT)
    if depth not in levels:
        raise UnknownName("depth", str(depth), levels)
    packages: Literal["imported", "opened"] = "imported" if deep else "opened"
    return survey(names, depth=Presence(depth), timeout=timeout, packages=packages)


class _Search:
    """The probes of one survey, their findings, and the jobs to open the libraries that they found."""

    def __init__(
        self,
        host: Host,
        depth: Presence,
        timeout: float,
        opens: bool,
        packages: str,
        computing: Collection[str],
    ) -> None:
        self.host, self.timeout, self.opens = host, timeout, opens
        self.is_deep, self.computing = packages == "imported", computing
        opens_extensions = packages == "opened"
        self.opens_extensions = opens and opens_extensions and depth is Presence.USABLE
        self.depth = depth if host.pid is None else Presence.LOADABLE
        self.modules: dict[str, ModuleType] = {}
        self.findings: dict[str, Finding] = {}
        #: The reports of probes that failed.
        self.reports: dict[str, ProbeReport] = {}
        self.seconds: dict[str, float] = {}
        self.jobs: list[Job] = []
        #: The jobs that open the extension modules of packages, by probe.
        self.extensions: dict[str, int] = {}
        #: The probes whose package lacks something.
        self.lacking: list[str] = []

    def opened(
        self,
        names: Sequence[str],
        all_probes: bool,
        progress: Progress | None,
        meanwhile: Callable[[], object] | None,
    ) -> "dict[int, Reply]":
        """Run the probes, and return the child's reply to each job, by the job's number."""
        replies: dict[int, Reply] = {}
        child: Child | None = None
        if self.opens:
            from mlbackends.isolation import client
            from mlbackends.isolation.protocol import OPENED_FIRST

            # If every probe runs there will be something to open: the child starts meanwhile.
            child = client.Child() if all_probes else None
        groups = [names]
        if child:  # the libraries that take longest are opened first
            first = [name for name in names if name in OPENED_FIRST]
            last = [name for name in names if name in _FOUND_LAST]
            groups = [first, [name for name in names if name not in (*first, *last)], last]
        batches = self._batches(groups, meanwhile)
        try:
            for batch in filter(None, batches):
                child = child or client.Child()
                if progress is not None:
                    progress(0, len(self.jobs), self.jobs[0].probe)
                for reply in child.send(itertools.chain([batch], batches)):
                    replies[reply.id] = reply
                    if progress is not None:
                        left = (job.probe for job in self.jobs if job.id not in replies)
                        progress(len(replies), len(self.jobs), next(left, ""))
        finally:
            if child is not None:
                child.close()
        return replies

    def _batches(
        self, groups: Iterable[Sequence[str]], meanwhile: Callable[[], object] | None
    ) -> "Iterator[list[Request]]":
        """Run groups of probes with those that they need; yield requests to open what each group found."""
        if self.opens:
            from mlbackends.isolation.package_check import extension_of
            from mlbackends.isolation.protocol import EXTENSION, Job, Request

        for group in groups:
            before = len(self.jobs)
            modules = {name: registry.load(registry.PROBES, name) for name in group}
            for module in [*modules.values()]:
                for needed in getattr(module, "NEEDS", ()):
                    modules.setdefault(needed, registry.load(registry.PROBES, needed))
            for name, module in modules.items():
                if name in self.modules:
                    continue
                self.modules[name] = module
                start = time.perf_counter()
                try:
                    finding = found(module, self.host, is_deep=self.is_deep or name in self.computing)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001  one broken probe must not cost the others
                    self.reports[name] = _failed(module, error, time.perf_counter() - start)
                    continue
                self.findings[name] = finding
                for library in finding.libraries if self.opens else ():
                    # Of a process, only what it has mapped.
                    if not library.reasons and (self.host.pid is None or library.used is True):
                        self.jobs.append(Job(len(self.jobs), name, library))
                if self.opens_extensions and (path := extension_of(self.host, finding)):
                    self.extensions[name] = len(self.jobs)
                    self.jobs.append(Job(len(self.jobs), name, Library("", path, found_by=EXTENSION)))
                self.seconds[name] = time.perf_counter() - start
            # One request for each file: a big library is opened once for all its probes, and for the
            # extension module that needs it.
            by_file: dict[str, list[Job]] = {}
            for job in self.jobs[before:]:
                path = job.library.path
                if job.library.found_by == EXTENSION:
                    path = next((lib.path for lib in self.findings[job.probe].libraries), path)
                by_file.setdefault(self.host.realpath(path), []).append(job)
            yield [Request(tuple(jobs), self.depth, self.timeout) for jobs in by_file.values()]
        self.lacking = _lacking(self.findings, self.host) if self.opens_extensions else []
        if self.jobs and meanwhile is not None:
            meanwhile()


def _derived(module: ModuleType, report: ProbeReport, facts: dict[str, Any]) -> ProbeReport:
    """Return a probe's report with derived facts, and with what the probe makes of them."""
    if not facts:
        return replace(report, facts=facts)
    reasons, warnings = module.judged(facts) if hasattr(module, "judged") else ((), report.warnings)
    return replace(report, facts=facts, presence=Presence.FOUND, reasons=reasons, warnings=warnings)


def _failed(module: ModuleType, error: BaseException, seconds: float) -> ProbeReport:
    """Return the report of a probe that raised an exception."""
    import traceback

    trace = "".join(traceback.format_exception(error))
    failure = Failure(clean(f"{type(error).__name__}: {error}"), clean(trace))
    return ProbeReport(None, failure=failure, source=_source(module), duration_seconds=seconds)


def _source(module: object) -> str:
    """Return the paragraph "Source:" of a probe's docstring, on one line."""
    text = (getattr(module, "__doc__", "") or "").partition("\nSource:")[2]
    return " ".join(text.split("\n\n")[0].split())

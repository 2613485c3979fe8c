"""Ask every probe, and merge what it finds with what its libraries return into one report.

`find` runs here and reads files. The libraries that it found are opened and used in a child: see
`mlbackends.isolation.client`. A probe that fails is a failure in the report, never the end of it.
"""

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mlbackends.base import registry
from mlbackends.base.errors import BadInput
from mlbackends.base.reasons import Reason, shared_codes
from mlbackends.base.version import __version__
from mlbackends.base.writable import clean, is_text, writable
from mlbackends.host.host import Host
from mlbackends.host.python.packages import has_compiled_files
from mlbackends.model.records import (
    SCHEMA,
    Answer,
    Device,
    Failure,
    Finding,
    Presence,
    ProbeReport,
    Report,
    speaking_copy,
)

#: Seconds that a library has for each answer. A driver of a GPU that sleeps needs 1.5 and more.
TIMEOUT = 5.0

if TYPE_CHECKING:
    from mlbackends.isolation.client import Child
    from mlbackends.isolation.protocol import Job, Reply, Request

#: Called with how many libraries have answered, of how many, and a probe that is still waited for.
Progress = Callable[[int, int, str], None]


def probe_names() -> tuple[str, ...]:
    """Return the names of every probe, those of other distributions too."""
    return registry.names(registry.PROBES)


def all_codes() -> dict[str, str]:
    """Return every reason code with its sentence, those that probes declare too."""
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
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Report:
    """Ask the named probes, all of them by default, up to a presence level.

    Raises UnknownName, with the nearest name, and BadInput for a process that may not be looked at.
    On a recorded host nothing can be opened, so the depth is FOUND whatever is wanted; so it is for a
    process, of which what it has mapped is opened for its version, if it is this user's.
    timeout: seconds for each answer of a library. computing: the probes whose package is imported and
    computes, at USABLE. meanwhile: called once while libraries are queried, where any are.
    """
    start = time.perf_counter()
    host = host or Host(timeout=timeout)
    opens, depth = _reach(host, depth)
    requested = names or probe_names()
    search = _Search(host, depth, timeout, opens)
    replies = search.opened(requested, not names, progress, meanwhile)
    modules, findings, reports = search.modules, search.findings, search.reports
    for name, finding in findings.items():
        theirs = [job for job in search.jobs if job.probe == name and job.id in replies]
        own = {job.library.path: replies[job.id] for job in theirs}
        if host.pid is not None:
            finding, own = _with_versions(finding, own), {}
        total = search.seconds[name] + sum(reply.seconds for reply in own.values())
        reports[name] = replace(
            _merged(name, finding, own, depth, _has_check(modules[name], finding)),
            source=_source(modules[name]),
            duration_seconds=round(total, 6),
        )
    for name in computing if depth is Presence.USABLE else ():
        if name in findings and _has_check(modules[name], findings[name]):
            from mlbackends.isolation.package_check import computed

            if progress is not None:
                progress(len(replies), len(search.jobs) + 1, name)
            reports[name] = computed(name, modules[name], reports[name], host, timeout)
    for name, finding in findings.items():
        if hasattr(modules[name], "derive"):
            reports[name] = _derived(modules[name], finding, reports, reports[name])
    return Report(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        depth=depth,
        root=clean(host.root or "/"),
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        duration_seconds=round(time.perf_counter() - start, 6),
        redacted=False,
        probes={name: reports[name] for name in requested},
    )


class _Search:
    """Probes that look, what they found, and the jobs for the libraries among it that are opened."""

    def __init__(self, host: Host, depth: Presence, timeout: float, opens: bool) -> None:
        self.host, self.timeout, self.opens = host, timeout, opens
        self.depth = depth if host.pid is None else Presence.LOADABLE
        self.modules: dict[str, ModuleType] = {}
        self.findings: dict[str, Finding] = {}
        #: Those of probes that failed.
        self.reports: dict[str, ProbeReport] = {}
        self.seconds: dict[str, float] = {}
        self.jobs: list[Job] = []

    def opened(
        self,
        names: Sequence[str],
        all_probes: bool,
        progress: Progress | None,
        meanwhile: Callable[[], object] | None,
    ) -> "dict[int, Reply]":
        """Let probes look, and return the child's reply to each job, by its number."""
        replies: dict[int, Reply] = {}
        child: Child | None = None
        if self.opens:
            from mlbackends.isolation import client

            # Where every probe runs there will be something to open: the child comes up meanwhile.
            child = client.Child() if all_probes else None
        batches = self._batches(_by_urgency(names) if child else [names], meanwhile)
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
        """Let groups of probes look, and yield the requests to open what each has found."""
        for group in groups:
            before = len(self.jobs)
            for name, module in _modules(group).items():
                if name not in self.modules:
                    self.modules[name] = module
                    self._look(name, module)
            yield self._requests(self.jobs[before:])
        if self.jobs and meanwhile is not None:
            meanwhile()

    def _look(self, name: str, module: ModuleType) -> None:
        before = time.perf_counter()
        try:
            finding = _found(module, self.host)
        except Exception as error:  # noqa: BLE001  one broken probe must not cost the others
            self.reports[name] = _failed(module, error, time.perf_counter() - before)
            return
        self.findings[name] = finding
        if self.opens:
            self.jobs += _jobs(name, finding, self.host, len(self.jobs))
        self.seconds[name] = time.perf_counter() - before

    def _requests(self, jobs: Sequence["Job"]) -> "list[Request]":
        """Return one request for each file, so that a big library is opened once for all its probes."""
        by_file: dict[str, list[Job]] = {}
        for job in jobs:
            by_file.setdefault(self.host.realpath(job.library.path), []).append(job)
        if by_file:
            from mlbackends.isolation.protocol import Request
        return [
            Request(tuple(jobs_of_file), self.depth, self.timeout)
            for jobs_of_file in by_file.values()
        ]


def _by_urgency(names: Sequence[str]) -> list[list[str]]:
    """Return the probes whose libraries are opened first, and the others."""
    from mlbackends.isolation.protocol import OPENED_FIRST

    first = [name for name in names if name in OPENED_FIRST]
    return [first, [name for name in names if name not in OPENED_FIRST]]


def _reach(host: Host, depth: Presence) -> tuple[bool, Presence]:
    """Return whether libraries are opened, and how far the report goes."""
    if host.pid is not None and not host.mapped_files():
        raise BadInput(f"what process {host.pid} has mapped cannot be read")
    opens = depth is not Presence.FOUND and not host.root and host.is_ours
    is_ours = host.is_live and host.pid is None
    return opens, depth if is_ours else Presence.FOUND


def _jobs(name: str, finding: Finding, host: Host, first: int) -> "list[Job]":
    """Return a job for each copy that can be opened; of a process, that it has mapped."""
    from mlbackends.isolation.protocol import Job

    whole = [library for library in finding.libraries if not library.reasons]
    mapped = [library for library in whole if host.pid is None or library.used is True]
    return [Job(number, name, library) for number, library in enumerate(mapped, first)]


def _modules(names: Sequence[str]) -> dict[str, ModuleType]:
    """Return probes by name, and those from whose reports they derive their own."""
    modules = {name: registry.load(registry.PROBES, name) for name in names}
    for needed in [each for one in modules.values() for each in getattr(one, "NEEDS", ())]:
        modules.setdefault(needed, registry.load(registry.PROBES, needed))
    return modules


def _found(module: ModuleType, host: Host) -> Finding:
    """Let a probe look. A library under a name that no record can hold is not opened."""
    before = len(host.silent)
    found = module.find(host)
    if not isinstance(found, Finding):
        raise TypeError(f"find returned {type(found).__name__}, not a Finding")
    found = _without_silent(found, host.silent[before:], host.silent[:before])
    if host.pid is not None:
        found = _of_process(host, found)
    finding = writable(found)
    if finding is found:
        return found
    message = "its path is not UTF-8, and no record can hold it; so it was not opened"
    libraries = tuple(
        shown
        if is_text(library.path) or shown.reasons
        else replace(shown, reasons=(Reason("not-asked", message),))
        for library, shown in zip(found.libraries, finding.libraries, strict=True)
    )
    return replace(finding, libraries=libraries)


def _without_silent(
    finding: Finding, silent: Sequence[tuple[str, str]], before: Sequence[tuple[str, str]]
) -> Finding:
    """Add what did not answer: a reason where nothing was found, a warning beside what was.

    What a probe says of such a path is left out: it is not known to be so. silent: the mounts and paths
    that it met; before: those that were met until then, since one path of a mount stands for all.
    """
    if not silent:
        return finding
    first = dict(reversed((*before, *silent)))
    reasons = tuple(
        Reason("not-answering", f"{first[mount]}: the file system at {mount} does not answer")
        for mount in dict(silent)
    )
    paths = {path for _, path in silent}

    def sure(reasons_found: tuple[Reason, ...]) -> tuple[Reason, ...]:
        return tuple(one for one in reasons_found if not any(path in one.message for path in paths))

    found = (finding.libraries, finding.devices, finding.facts, finding.version)
    if finding.presence is Presence.ABSENT or not any(found):
        return replace(finding, presence=None, reasons=reasons + sure(finding.reasons))
    return replace(
        finding, reasons=sure(finding.reasons), warnings=sure(finding.warnings) + reasons
    )


def _of_process(host: Host, found: Finding) -> Finding:
    """Return an absence for a library or package of which the process that is inspected has mapped no file.

    A package without compiled files leaves no trace in a process: what its environment has is reported.
    """
    message = "the process has no copy of it mapped"
    if found.libraries:
        is_loaded = any(library.used is not False for library in found.libraries)
    elif location := str(found.facts.get("location", "")):
        files = host.mapped_files()
        is_loaded = any(path.startswith(f"{location.rstrip('/')}/") for path in files)
        is_loaded = is_loaded or not has_compiled_files(host, location)
        message = f"the process has mapped no file of {location}"
    else:
        return found
    if is_loaded:
        return found
    reasons = (Reason("not-mapped", message),)
    return Finding(found.libraries, presence=Presence.ABSENT, reasons=reasons)


def _has_check(module: ModuleType, finding: Finding) -> bool:
    """Tell whether the package of a probe is here and can be made to compute."""
    return hasattr(module, "CHECK") and "location" in finding.facts


def _derived(
    module: ModuleType, finding: Finding, reports: dict[str, ProbeReport], own: ProbeReport
) -> ProbeReport:
    """Return a probe's report with the facts that follow from those of others."""
    try:
        facts = module.derive(finding.facts, reports)
    except Exception as error:  # noqa: BLE001  as in survey
        return _failed(module, error, own.duration_seconds)
    found = {"presence": Presence.FOUND, "reasons": ()} if facts else {}
    return replace(own, facts=facts, **found)


def _failed(module: ModuleType, error: Exception, seconds: float) -> ProbeReport:
    """Return the report of a probe that raised an exception."""
    import traceback

    trace = "".join(traceback.format_exception(error))
    failure = Failure(clean(f"{type(error).__name__}: {error}"), clean(trace))
    return ProbeReport(None, failure=failure, source=_source(module), duration_seconds=seconds)


def _with_versions(finding: Finding, replies: dict[str, "Reply"]) -> Finding:
    """Return what was found with the versions that copies report; all else is true of our child."""
    libraries = []
    for library in finding.libraries:
        reply = replies.get(library.path)
        version = reply.answer.library.version if reply and reply.answer else ""
        libraries.append(replace(library, version=version or library.version))
    return replace(finding, libraries=tuple(libraries))


def _source(module: object) -> str:
    """Return the paragraph "Source:" of a probe's docstring, on one line."""
    text = (getattr(module, "__doc__", "") or "").partition("\nSource:")[2]
    return " ".join(text.split("\n\n")[0].split())


def _merged(
    name: str, finding: Finding, replies: dict[str, "Reply"], depth: Presence, has_check: bool
) -> ProbeReport:
    """Merge what was found with the child's replies, which are by the library's path.

    has_check: whether the probe's package can be made to compute.
    """
    libraries = list(finding.libraries)
    for i, library in enumerate(libraries):
        if reply := replies.get(library.path):
            reason = reply.reason
            if not reason and reply.presence is Presence.LOADABLE and depth is Presence.USABLE:
                message = f"it opens and answers; no check here computes with {library.name}"
                reason = Reason("no-use-check", message)
                if has_check:
                    message = (
                        f"it opens and answers; `backends info {name}` imports it and computes"
                    )
                    reason = Reason("not-computed", message)
            opened = reply.answer.library if reply.answer else library
            libraries[i] = replace(
                opened, presence=reply.presence, reasons=(reason,) if reason else ()
            )
    own = [library for library in libraries if library.name == name] or libraries
    chosen = speaking_copy(name, libraries)
    reply = replies.get(chosen.path) if chosen else None
    answer = reply.answer if reply and reply.answer else Answer(chosen) if chosen else None
    for i, library in enumerate(libraries):
        other = replies.get(library.path)
        if library is not chosen and other and other.answer and other.answer.facts:
            libraries[i] = replace(library, facts={**library.facts, **other.answer.facts})
    devices = _merged_devices(finding.devices, answer.devices if answer else ())
    # The best among devices and the copies that are not shadowed by another.
    levels = [each.presence for each in own if each.wins or not each.wins_because]
    levels += [device.presence for device in devices]
    # Facts alone are of something that is there, unless a reason says that it is not.
    has_facts = bool((finding.facts or finding.version) and not finding.reasons)
    default = Presence.FOUND if has_facts else Presence.ABSENT
    presence: Presence | None = finding.presence or max(
        levels, key=lambda presence: presence.level, default=default
    )
    # What find held against it is outdone where it was seen to work.
    reasons = finding.reasons if presence is not Presence.USABLE else ()
    if chosen and presence is not Presence.USABLE:
        reasons += tuple(reason for reason in chosen.reasons if reason not in reasons)
    version = (chosen.version if chosen else "") or finding.version
    version = "" if presence is Presence.ABSENT else version
    facts = {**finding.facts, **(answer.facts if answer else {})}
    failures = [reply.failure for reply in replies.values() if reply.failure]
    failure = Failure("a probe failed in the child", failures[0]) if failures else None
    if presence is Presence.FOUND and not (facts or libraries or devices or version):
        presence = None
        failure = failure or Failure("none of what it reads is here, or makes sense")
    elif any(reason.code in ("only-the-framework-knows", "not-answering") for reason in reasons):
        presence = None
    return ProbeReport(
        presence=presence,
        version=version,
        facts=facts,
        libraries=tuple(libraries),
        devices=devices,
        reasons=reasons,
        warnings=finding.warnings + (answer.warnings if answer else ()),
        failure=failure,
    )


def _merged_devices(found: tuple[Device, ...], opened: tuple[Device, ...]) -> tuple[Device, ...]:
    """Merge the devices that files tell of with those of a library, whose values go first."""
    merged = []
    left = list(found)
    for device in opened:
        match = next((one for one in left if _is_match(one, device)), None)
        if match is not None:
            left.remove(match)
            filled = {
                name: getattr(match, name)
                for name in Device.__struct_fields__
                if not getattr(device, name) and getattr(match, name) not in (None, "", ())
            }
            filled["facts"] = {**match.facts, **device.facts}
            filled["volatile"] = {**match.volatile, **device.volatile}
            device = replace(device, **filled)
        merged.append(device)
    return (*merged, *left)


def _is_match(one: Device, other: Device) -> bool:
    """Tell whether two records are of one device: by address, or by number where one has no address."""
    if one.kind == other.kind and one.pci_address and other.pci_address:
        return one.pci_address == other.pci_address
    return one.kind == other.kind and one.index == other.index

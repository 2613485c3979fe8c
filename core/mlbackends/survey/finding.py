"""What a probe finds in files and the environment, less what the host could not read or has not mapped."""

from collections.abc import Sequence
from types import ModuleType

from msgspec.structs import replace

from mlbackends.base.reasons import Reason
from mlbackends.base.writable import is_text, writable
from mlbackends.host.host import Host
from mlbackends.model.records import Finding, Presence


def found(module: ModuleType, host: Host, *, is_deep: bool = False) -> Finding:
    """Call a probe's `find`, or its `find_all` if it has one and that is wanted.

    Raises what it raises, and TypeError where it returns something else.
    """
    before = len(host.silent)
    finding = getattr(module, "find_all" if is_deep else "find", module.find)(host)
    if not isinstance(finding, Finding):
        raise TypeError(f"find returned {type(finding).__name__}, not a Finding")
    finding = _without_silent(finding, host.silent[before:], host.silent[:before])
    if host.pid is not None:
        finding = _mapped_only(host, finding)
    # Replace bytes that are not UTF-8; a library with such a path is reported and not opened.
    clean = writable(finding)
    if clean is finding:
        return finding
    message = "its path is not UTF-8, and no record can hold it; so it was not opened"
    libraries = tuple(
        shown
        if is_text(library.path) or shown.reasons
        else replace(shown, reasons=(Reason("not-asked", message),))
        for library, shown in zip(finding.libraries, clean.libraries, strict=True)
    )
    return replace(clean, libraries=libraries)


def _without_silent(
    finding: Finding, silent: Sequence[tuple[str, str]], before: Sequence[tuple[str, str]]
) -> Finding:
    """Add the mounts that did not answer: as reasons where nothing was found, else as warnings.

    The probe's own reasons about such paths are dropped, because nothing is known of them. silent: the
    mounts and paths that the probe met; before: those met earlier, because one path of a mount is enough.
    """
    if not silent:
        return finding
    first_path = dict(reversed((*before, *silent)))
    unanswered = tuple(
        Reason("not-answering", f"{first_path[mount]}: the file system at {mount} does not answer")
        for mount in dict(silent)
    )
    paths = {path for _, path in silent}

    def known(reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
        return tuple(reason for reason in reasons if not any(path in reason.message for path in paths))

    seen = (finding.libraries, finding.devices, finding.facts, finding.version)
    if finding.presence is Presence.ABSENT or not any(seen):
        return replace(finding, presence=None, reasons=unanswered + known(finding.reasons))
    return replace(finding, reasons=known(finding.reasons), warnings=known(finding.warnings) + unanswered)


def _mapped_only(host: Host, finding: Finding) -> Finding:
    """Report a library or package as absent if the inspected process has mapped no file of it.

    A package without compiled files leaves no trace in a process: what its environment has is reported.
    """
    message = "the process has no copy of it mapped"
    if finding.libraries:
        is_loaded = any(library.used is not False for library in finding.libraries)
    elif location := str(finding.facts.get("location", "")):
        is_loaded = any(path.startswith(f"{location.rstrip('/')}/") for path in host.mapped_files())
        is_loaded = is_loaded or not any(host.glob(f"{location}/{below}*.so") for below in ("", "*/", "*/*/"))
        message = f"the process has mapped no file of {location}"
    else:
        return finding
    if is_loaded:
        return finding
    reasons = (Reason("not-mapped", message),)
    return Finding(finding.libraries, presence=Presence.ABSENT, reasons=reasons)

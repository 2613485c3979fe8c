"""Writes a snapshot, and says what is in it."""

from typing import TYPE_CHECKING

from mlbackends_cli.catalogue import binary_size

if TYPE_CHECKING:
    from mlbackends.audit.snapshot import Contents
    from mlbackends.model.records import Presence
    from mlbackends_cli.terminal import ProgressLine

_KEPT = (
    "kept as they are: versions, other paths, kernel parameters that change speed or devices, and the"
    " values\n  of those variables"
)


_LEFT_OUT = (
    "left out: of the kernel's command line, the mounts, and the metadata of packages all that no probe"
    " reads"
)


def report(
    target: str,
    root: str | None,
    python: str,
    depth: "Presence",
    timeout: float,
    keep_identity: bool,
    progress: "ProgressLine",
) -> str:
    """Write a report, and return what there is to say of it."""
    from mlbackends.audit.reports import report_of
    from mlbackends_cli.output import indented, write

    made = report_of(
        root or "-",
        python=python,
        depth=depth,
        timeout=timeout,
        redact=not keep_identity,
        progress=progress,
    )
    data = indented(made).encode() + b"\n"
    write(data, target)
    variables = made.probes["environment"].facts.get("variables", {})
    names = tuple(variables) if isinstance(variables, dict) else ()
    lines = [
        f"{target}: {binary_size(len(data))}, what {len(made.probes)} probes tell at depth {made.depth}",
        *_listed("variables", names),
        _identity(keep_identity, "replaced by words that say so"),
    ]
    return "\n".join(lines) + "\n"


def machine(
    target: str,
    root: str | None,
    python: str,
    timeout: float,
    keep_identity: bool,
    progress: "ProgressLine",
) -> str:
    """Write a recorded machine, and return what there is to say of it."""
    from mlbackends.audit.snapshot import record
    from mlbackends.host.host import Host
    from mlbackends.host.interpreter import ask

    host = Host(root or "/", python=ask(python, timeout) if python else None)
    contents = record(target, host, keep_identity=keep_identity, progress=progress)
    count = sum(contents.folders.values())
    lines = [
        f"{target}: {binary_size(contents.size_bytes)}, a recorded machine of {count} files",
        *_listed("files", tuple(f"{top} {number}" for top, number in contents.folders.items())),
        *_listed("variables", contents.variables),
        *_listed("commands", contents.commands),
        *(_listed("too large to be kept whole", contents.cut) if contents.cut else ()),
        f"  {_KEPT}",
        *((f"  {_LEFT_OUT}", _replaced(contents)) if not keep_identity else (_identity(True, ""),)),
    ]
    return "\n".join(lines) + "\n"


def _listed(word: str, names: tuple[str, ...]) -> list[str]:
    import textwrap

    text = ", ".join(names) or "none"
    return textwrap.wrap(
        f"{word}: {text}",
        100,
        initial_indent="  ",
        subsequent_indent="    ",
        break_on_hyphens=False,
    )


def _replaced(contents: "Contents") -> str:
    told = ", ".join(f"{kind} ({count})" for kind, count in sorted(contents.replaced.items()))
    return (
        f"  replaced by stand-ins: {told or 'nothing that names the machine or its user was found'}"
    )


def _identity(keep_identity: bool, how: str) -> str:
    if keep_identity:
        return "  nothing was replaced: it names this machine and its user"
    return f"  host name, user, home folder, serial numbers and UUIDs: {how}"

"""Save a machine: a report in a file, or the machine itself as a folder or in one file.

FILE.json gets the report that `backends info --format json` prints. DIR gets the files, variables and
command outputs that the probes read, and nothing else, so that `backends info --root DIR` gives the same
answers elsewhere. FILE.machine gets the same as one text file, which is easy to mail and review, and
works on Windows too. Each is written completely or not at all; --overwrite replaces an existing one.
Names that identify the machine or its user are replaced by placeholders of the same form, unless you pass
--keep-identity; variables whose names look like secrets are never kept. A summary of the content and of
what was replaced is printed, so that you can check it before you share it.

Examples:
  backends snapshot good.json               a report; backends diff good.json - shows what changed since
  backends snapshot node.machine            a recorded machine, to inspect elsewhere:
  backends info --root node.machine         what backends info would print there
  backends doctor node.machine              and what is wrong with it
"""

from collections.abc import Sequence

import click

from mlbackends.audit.snapshot import ENDING, record, refuse_file
from mlbackends.base.errors import BadInput
from mlbackends.host.archive import ENDING as ARCHIVE_ENDING
from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import PYTHON, TIMEOUT, depth_option, option, read_report, root_option
from mlbackends_cli.output import indented, refuse_unwritable, write
from mlbackends_cli.terminal import ProgressLine
from mlbackends_cli.text.plain import binary_size, one_line, without_commands, wrapped

_UNREDACTED = (
    "kept: versions, other paths, kernel parameters that affect speed or devices, and the"
    " values\n  of those variables"
)
_LEFT_OUT = (
    "left out: everything in the kernel's command line, the mounts and the packages' metadata that no probe"
    " reads"
)
_REPLACED = "host name, user, home folder, serial numbers, UUIDs and addresses: replaced by placeholders"
_NOTHING_REPLACED = "nothing was replaced: this names the machine and its user"


@documented()
@click.argument("target", metavar="FILE.json|FILE.machine|DIR")
@option("--keep-identity", "keep-identity")
@option("--overwrite", "Replace an existing file or recorded machine.")
@root_option("Save a recorded machine, not this one.")
@PYTHON
@depth_option(None, "usable for FILE.json; a recorded machine has only what can be read")
@TIMEOUT
def command(
    target: str,
    keep_identity: bool,
    overwrite: bool,
    root: str | None,
    python: str,
    depth: str | None,
    timeout: float,
) -> None:
    if target in ("-", ""):
        raise BadInput(
            "a snapshot needs a name",
            "`backends info --format json` writes a report to standard output",
        )
    if root and python:
        message = "--root inspects a recorded machine; it cannot be combined with --python"
        raise BadInput(message, "leave one of them out")
    if not target.endswith(ENDING) and depth not in (None, Presence.FOUND.value):
        raise BadInput(
            f"a recorded machine contains only what can be read: --depth {depth} is for FILE.json",
            f"write {target}.json for a report, or leave --depth out",
        )
    if target.endswith((ENDING, ARCHIVE_ENDING)):
        refuse_unwritable(target)
    if not target.endswith(ENDING):
        lines = _write_machine(
            target, root, python, timeout, keep_identity=keep_identity, overwrite=overwrite
        )
    else:
        refuse_file(target, overwrite)
        report = read_report(
            root or "-",
            python=python,
            depth=depth or Presence.USABLE.value,
            timeout=timeout,
            redact=not keep_identity,
        )
        data = indented(report).encode() + b"\n"
        write(data, target, mode=0o600)
        about = f"{len(report.probes)} probes at depth {report.depth}"
        variables = report.probes["environment"].facts.get("variables", {})
        lines = [
            f"{one_line(target)}: {binary_size(len(data))}, {about}",
            _listed("variables", tuple(variables) if isinstance(variables, dict) else ()),
            _NOTHING_REPLACED if keep_identity else _REPLACED,
        ]
    write(without_commands("\n  ".join(lines)))


def _write_machine(
    target: str,
    root: str | None,
    python: str,
    timeout: float,
    *,
    keep_identity: bool,
    overwrite: bool,
) -> list[str]:
    """Write a recorded machine; return lines about it."""
    from mlbackends.host.interpreter import query

    described = query(python, timeout) if python else None
    host = Host(root or "/", python=described, timeout=timeout)
    with ProgressLine() as progress:
        contents = record(target, host, keep_identity=keep_identity, overwrite=overwrite, progress=progress)
    count = sum(contents.folders.values())
    lines = [
        f"{one_line(target)}: {binary_size(contents.size_bytes)}, a recorded machine of {count} files",
        _listed("files", [f"{top} {number}" for top, number in contents.folders.items()]),
        _listed("variables", contents.variables),
        _listed("commands", contents.commands),
        *([_listed("too large to be kept whole", contents.cut)] if contents.cut else []),
        _UNREDACTED,
    ]
    if keep_identity:
        return [*lines, _NOTHING_REPLACED]
    kinds = ", ".join(f"{kind} ({number})" for kind, number in sorted(contents.replaced.items()))
    nothing = "nothing that names the machine or its user was found"
    return [*lines, _LEFT_OUT, f"replaced by placeholders: {kinds or nothing}"]


def _listed(word: str, names: Sequence[str]) -> str:
    lines = wrapped(one_line(f"{word}: {', '.join(names) or 'none'}"), 100, "  ", "    ")
    return "\n".join(lines).lstrip()

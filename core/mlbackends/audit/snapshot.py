"""A machine as something to keep: a file with its report, or a folder or an archive to look at elsewhere."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import check
from mlbackends.base.version import __version__
from mlbackends.host.archive import ENDING as ARCHIVE_ENDING
from mlbackends.host.declared import facts_of
from mlbackends.host.files import whole_file
from mlbackends.model.records import Presence, Report

if TYPE_CHECKING:
    from mlbackends.host.host import Host
    from mlbackends.survey import Progress

ENDING = ".json"


class Contents(Struct, frozen=True):
    """What a recorded machine holds, for whoever has to decide whether it may be shared.

    folders: how many files are in each of the topmost folders. replaced: how often something was
    replaced, by what it was. cut: the files and folders that were too large to be kept whole.
    """

    size_bytes: int
    folders: dict[str, int]
    variables: tuple[str, ...]
    commands: tuple[str, ...]
    replaced: dict[str, int]
    cut: tuple[str, ...] = ()


def record(
    path: str,
    host: "Host",
    *,
    keep_identity: bool = False,
    overwrite: bool = False,
    progress: "Progress | None" = None,
) -> Contents:
    """Write what the probes read of a machine into a folder or an archive, whole or not at all.

    overwrite: replace a recorded machine. Raises BadInput where something else is there, or nothing can be
    written.
    """
    from mlbackends.host.recording.anonymise import Anonymiser, SecretsRemover
    from mlbackends.host.recording.recorder import Recording
    from mlbackends.host.redaction import names_of
    from mlbackends.survey import survey

    check(path)
    is_archive = path.endswith(ARCHIVE_ENDING)
    (refuse_file if is_archive else _refuse_folder)(path, overwrite)
    recording = Recording(host)
    report = survey((), recording, Presence.FOUND, progress=progress)
    anonymiser = SecretsRemover() if keep_identity else Anonymiser(names_of(host), _identifying(report))
    replaced = "Nothing in it was replaced" if keep_identity else "What identifies it was replaced"
    about = (
        f"A machine recorded by backends {__version__} at {report.created}. {replaced}.\n"
        f"Look at it with `backends info --root` and the name of this {'file' if is_archive else 'folder'}.\n"
    )
    try:
        tree = recording.files(anonymiser)
        tree.put("about.txt", about.encode())
        if is_archive:
            text = tree.text()
            with whole_file(path, 0o600) as file:
                file.write(text)
        else:
            # The folder is written whole or not at all, in place of an existing one.
            target = os.path.abspath(path)
            part = tempfile.mkdtemp(prefix=".backends-", dir=os.path.dirname(target))
            try:
                new, before = os.path.join(part, "machine"), os.path.join(part, "before")
                os.mkdir(new, 0o700)
                tree.unpack(new)
                exists = os.path.isdir(target)
                if exists:  # Windows replaces no folder, not even an empty one
                    os.rename(target, before)
                try:
                    os.rename(new, target)
                except OSError:
                    if exists:
                        os.rename(before, target)
                    raise
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{path} cannot be written: {why}") from None
    size = 0
    folders: Counter[str] = Counter()
    for name, entry in tree.entries.items():
        if not isinstance(entry, set):
            size += len(entry)
            top, _, inner = name.partition("/")
            if top == "root":
                folders["/" + inner.partition("/")[0]] += 1
    return Contents(
        len(text) if is_archive else size,
        dict(sorted(folders.items())),
        tuple(recording.variables()),
        recording.commands(),
        dict(anonymiser.replaced),
        tuple(anonymiser.text(path) for path in recording.cut),
    )


def refuse_file(path: str, overwrite: bool) -> None:
    """Raise BadInput where a file is there that must not be replaced; a device or a FIFO is written to."""
    if os.path.isfile(path) and not overwrite:
        hint = "add --overwrite to replace it, or name another file"
        raise BadInput(f"{path} already exists", hint)


def _refuse_folder(path: str, overwrite: bool) -> None:
    target = os.path.abspath(path)
    if os.path.lexists(target) and not os.path.isdir(target):
        raise BadInput(
            f"{path} exists and is not a folder",
            f"a report goes into a file that ends in {ENDING}, an archive into one in {ARCHIVE_ENDING}",
        )
    is_occupied = os.path.isdir(target) and (os.path.islink(target) or bool(os.listdir(target)))
    is_machine = is_occupied and os.path.isfile(os.path.join(target, "host.json"))
    if is_occupied and not (overwrite and is_machine and not os.path.islink(target)):
        hint = "name a folder that does not exist yet"
        hint = f"add --overwrite to replace it, or {hint}" if is_machine and not overwrite else hint
        raise BadInput(f"{path} is not empty", hint)


def _identifying(report: Report) -> Iterator[str]:
    """Yield the texts in a report that name a machine, a device, a job or a user."""
    values: list[Any] = []
    for name, probe in report.probes.items():
        facts = (fact.name for fact in facts_of(name).values() if fact.role == "identity")
        values += [probe.facts.get(fact) for fact in facts]
        values += [text for device in probe.devices for text in (device.uuid, device.serial)]
    while values:
        value = values.pop(0)
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list | tuple):
            values[:0] = value.values() if isinstance(value, dict) else value

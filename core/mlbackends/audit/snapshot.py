"""A machine as something to keep: one file with its report, or a folder that can be looked at elsewhere."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mlbackends import __version__
from mlbackends.model.errors import BadInput
from mlbackends.model.mounts import check
from mlbackends.model.records import Presence, Report
from mlbackends.model.registry import facts_of

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
    folder: str,
    host: "Host",
    *,
    keep_identity: bool = False,
    overwrite: bool = False,
    progress: "Progress | None" = None,
) -> Contents:
    """Write what the probes read of a machine into a folder, whole or not at all.

    overwrite: replace a recorded machine. Raises BadInput where the folder holds something else, or
    cannot be made.
    """
    from mlbackends.host.recording.anonymise import Anonymiser, SecretsRemover
    from mlbackends.host.recording.recorder import Recording
    from mlbackends.host.variables import names_of
    from mlbackends.survey import survey

    check(folder)
    target = os.path.abspath(folder)
    if os.path.lexists(target) and not os.path.isdir(target):
        raise BadInput(
            f"{folder} is there, and is no folder",
            f"a report goes into a file that ends in {ENDING}",
        )
    is_taken = os.path.isdir(target) and (os.path.islink(target) or bool(os.listdir(target)))
    is_machine = is_taken and os.path.isfile(os.path.join(target, "host.json"))
    if is_taken and not (overwrite and is_machine and not os.path.islink(target)):
        hint = "name a folder that is not there yet"
        hint = f"add --overwrite to replace it, or {hint}" if is_machine and not overwrite else hint
        raise BadInput(f"{folder} is not empty", hint)
    recording = Recording(host)
    report = survey((), recording, Presence.FOUND, progress=progress)
    anonymiser = (
        SecretsRemover() if keep_identity else Anonymiser(names_of(host), _identifying(report))
    )
    replaced = "Nothing in it was replaced" if keep_identity else "What names it was replaced"
    try:
        part = tempfile.mkdtemp(prefix=".backends-", dir=os.path.dirname(target))
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror}") from None
    try:
        recording.write(os.path.join(part, "machine"), anonymiser)
        about = os.path.join(part, "machine", "about.txt")
        with open(about, "w", encoding="utf-8") as file:
            file.write(
                f"A machine recorded by backends {__version__} at {report.created}. {replaced}.\n"
                "Look at it with `backends info --root` and the name of this folder.\n"
            )
        # One step from nothing to everything; an empty folder of that name gives way to it.
        if is_taken:
            os.rename(target, os.path.join(part, "before"))
        try:
            os.replace(os.path.join(part, "machine"), target)
        except OSError:
            if is_taken:
                os.rename(os.path.join(part, "before"), target)
            raise
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    size = 0
    folders: Counter[str] = Counter()
    for at, _, files in os.walk(target):
        size += sum(os.lstat(os.path.join(at, file)).st_size for file in files)
        inside = os.path.relpath(at, os.path.join(target, "root"))
        if files and not inside.startswith(".."):
            folders["/" + inside.partition(os.sep)[0].strip(".")] += len(files)
    return Contents(
        size,
        dict(sorted(folders.items())),
        tuple(recording.variables()),
        recording.commands(),
        dict(anonymiser.replaced),
        tuple(anonymiser.text(path) for path in recording.cut),
    )


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

"""One survey for all workers of a run: the first that needs a probe asks it, the others read the answer.

Workers that asked for themselves could come to different answers (a driver that is slow once), and then
collect different tests. A worker on another machine has no such folder, and asks for itself.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlbackends.model.records import Report


def shared(
    folder: str, depth: str, names: tuple[str, ...], ask: Callable[[tuple[str, ...]], Report]
) -> Report:
    """Return a report that has at least the named probes, from the folder as far as they are there."""
    path = os.path.join(folder, f"{depth}.json")
    with _alone(folder):
        found = _read(path)
        missing = tuple(name for name in names if found is None or name not in found.probes)
        if found is not None and not missing:
            return found
        report = joined(found, ask(missing))
        _write(path, report)
        return report


def joined(before: Report | None, added: Report) -> Report:
    """Return a report with the probes of both."""
    from msgspec.structs import replace

    return replace(added, probes={**before.probes, **added.probes}) if before else added


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Wait until no other process is in the folder; its end frees the lock."""
    import fcntl

    handle = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(path: str) -> Report | None:
    import msgspec

    from mlbackends.model.records import Report

    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Report)
    except (OSError, msgspec.DecodeError):  # not there yet, or its writer was killed amid it
        return None


def _write(path: str, report: Report) -> None:
    import msgspec

    with contextlib.suppress(OSError), open(f"{path}.new", "wb") as file:
        file.write(msgspec.json.encode(report))
        os.replace(file.name, path)

"""What is mounted where, as the kernel tells a process.

Source: proc_pid_mountinfo(5).
"""

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.model.patterns import pattern

_MOUNTS_LIMIT = 16384
_ESCAPED = pattern(r"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """One mount.

    root: the folder of the file system that is mounted, "/" for all of it. point: where.
    options: those of the file system, such as the controllers of a cgroup hierarchy.
    """

    root: str
    point: str
    kind: str
    options: tuple[str, ...] = ()


def mounts(host: Host) -> tuple[Mount, ...]:
    """Return the mounts in the order they were made; a later one hides an earlier at its point.

    With a process to look at (`host.pid`), they are still ours: its mount points may mean nothing
    outside its container.
    """
    cached: tuple[Mount, ...] | None = host.__dict__.get("_mounts")
    if cached is None:
        # Host takes /proc/self for the process that is looked at; thread-self is always ours.
        whose = "self" if host.pid is None else "thread-self"
        lines = host.read(f"/proc/{whose}/mountinfo").splitlines()[:_MOUNTS_LIMIT]
        cached = tuple(mount for mount in map(_mount, lines) if mount is not None)
        host.__dict__["_mounts"] = cached
    return cached


def mounted_at(host: Host, point: str) -> Mount | None:
    """Return what is mounted at exactly this point, None where nothing is."""
    for mount in reversed(mounts(host)):
        if mount.point == point:
            return mount
    return None


def _mount(line: str) -> Mount | None:
    # The optional fields before " - " vary in number.
    where, _, what = line.partition(" - ")
    try:
        _, _, _, root, point, _, *_ = where.split(" ")
        kind, _, options = what.split(" ", 2)
    except ValueError:
        return None
    if not point.startswith("/"):
        return None
    return Mount(_plain(root), _plain(point), kind, tuple(options.split(",")))


def _plain(path: str) -> str:
    """Return a path with the kernel's octal escapes undone, as for a space."""
    if "\\" not in path:
        return path
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8) & 0x7F), path)

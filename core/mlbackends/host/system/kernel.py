"""What the kernel provides to a process: mounts, the auxiliary vector, boot parameters; settings of macOS.

Source: proc_pid_mountinfo(5); getauxval(3), with the bits of each architecture's <asm/hwcap.h> or
<asm/cputable.h>; Linux Documentation/admin-guide/kernel-parameters.txt.
"""

import struct
from collections.abc import Iterable

from msgspec import Struct

from mlbackends.base.patterns import pattern
from mlbackends.base.quantities import whole_number
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host

_MOUNTS_LIMIT = 16384
_OPTIONS, _LONGEST_OPTION = "host/system/mount_options", 60
_ESCAPED = pattern(r"\\([0-7]{3})")

PAGE_SIZE = 6
HWCAP = 16
HWCAP2 = 26
_LAYOUTS = ("<Q", ">Q", "<I", ">I")
_HIGHEST_KEY = 4096


class Mount(Struct, frozen=True):
    """One mount.

    root: the folder of the file system that is mounted, "/" for all of it. point: where.
    options: those of the file system, such as the controllers of a cgroup hierarchy.
    flags: those of the mount, such as noatime.
    """

    root: str
    point: str
    kind: str
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@once_per_host
def mounts(host: Host) -> tuple[Mount, ...]:
    """Return the mounts in the order they were made; a later one hides an earlier at its point.

    With a process to inspect (`host.pid`), they are still ours: its mount points may mean nothing
    outside its container.
    """
    # In Host /proc/self is the inspected process; thread-self is always ours.
    process = "self" if host.pid is None else "thread-self"
    mounted = []
    for line in host.read(f"/proc/{process}/mountinfo").splitlines()[:_MOUNTS_LIMIT]:
        # The optional fields before " - " vary in number.
        mount, _, source = line.partition(" - ")
        fields, kinds = mount.split(" "), source.split(" ", 2)
        if len(fields) > 5 and len(kinds) > 2 and fields[4].startswith("/"):
            options, flags = tuple(kinds[2].split(",")), tuple(fields[5].split(","))
            mounted.append(Mount(_unescaped(fields[3]), _unescaped(fields[4]), kinds[0], options, flags))
    # Older kernels and recordings have only this file, which lacks the mounted folder of the file system.
    for line in host.read("/proc/mounts").splitlines()[:_MOUNTS_LIMIT] if not mounted else ():
        fields = line.split(" ")
        if len(fields) > 3 and fields[1].startswith("/"):
            options = tuple(fields[3].split(","))
            mounted.append(Mount("/", _unescaped(fields[1]), fields[2], options))
    return tuple(mounted)


def _unescaped(path: str) -> str:
    """Return a path with the kernel's octal escapes undone, as for a space."""
    if "\\" not in path:
        return path
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8) & 0x7F), path)


def is_node_mount(kind: str, point: str) -> bool:
    """Return whether a mount is of a disk or a server, not of the kernel, a container or a user's program."""
    names = table(_OPTIONS)
    is_skipped = kind in names["skipped_types"] or f"{point}/".startswith(tuple(names["skipped_points"]))
    return point == "/dev/shm" or not is_skipped  # noqa: S108  only compared


def known_options(options: Iterable[str]) -> list[str]:
    """Return the options of a mount that name no person, server or key, each once."""
    flags, values = (table(_OPTIONS)[kind] for kind in ("flags", "values"))
    known = (option for option in options if option in flags or option.partition("=")[0] in values)
    return [option for option in dict.fromkeys(known) if len(option) < _LONGEST_OPTION]


def mounted_at(host: Host, point: str) -> Mount | None:
    """Return what is mounted at exactly this point, None if nothing is."""
    return next((mount for mount in reversed(mounts(host)) if mount.point == point), None)


def mounted_above(host: Host, path: str) -> Mount | None:
    """Return the mount that a path without links is on, None if the mounts are not known."""
    point = f"{path.rstrip('/')}/"
    above = [mount for mount in mounts(host) if point.startswith(f"{mount.point.rstrip('/')}/")]
    return max(above, key=lambda mount: len(mount.point), default=None)


@once_per_host
def auxiliary_vector(host: Host) -> dict[int, int]:
    """Return the entries of /proc/self/auxv by number; {} if it is missing or makes no sense.

    A recorded machine may have another byte order and word length than ours: the layout in which
    every key is small and the last one is 0 is the right one.
    """
    data = host.read_bytes("/proc/self/auxv", 8192)
    for layout in _LAYOUTS:
        pair = struct.Struct(f"{layout[0]}2{layout[1]}")
        entries = list(pair.iter_unpack(data[: len(data) // pair.size * pair.size]))
        keys = [key for key, _ in entries]
        if 0 not in keys or entries[keys.index(0)][1] != 0:
            continue
        entries = entries[: keys.index(0)]
        if entries and all(0 < key < _HIGHEST_KEY for key, _ in entries):
            return dict(entries)
    return {}


def kernel_parameters(line: str) -> dict[str, str]:
    """Return the boot parameters that change speed or devices; a repeated one has both values.

    The others contain disks, servers, addresses and keys.
    """
    parameters: dict[str, str] = {}
    for word in known_parameters(line).split():
        name, _, value = word.partition("=")
        parameters[name] = f"{parameters[name]} {value}" if name in parameters else value[:200]
    return parameters


def known_parameters(line: str) -> str:
    """Return a kernel's command line without all parameters but those of kernel_parameters.json."""
    names = table("host/system/kernel_parameters")
    # What follows "--" is for init.
    words = f" {line} ".split(" -- ")[0].split()
    return " ".join(word for word in words if word.partition("=")[0] in names)


@once_per_host
def system_controls(host: Host) -> dict[str, str]:
    """Return the settings of macOS and the BSDs by name, as `sysctl -a` prints them; {} elsewhere."""
    controls = {}
    for line in host.run("sysctl", "-a").splitlines():
        name, separator, value = line.partition(":")
        if separator and " " not in name and "\t" not in name:
            controls[name] = value.strip()
    return controls


def control_number(controls: dict[str, str], *names: str) -> int | None:
    """Return the first of these settings that is a positive whole number, None if none is."""
    numbers = (whole_number(controls.get(name, ""), lowest=1) for name in names)
    return next(filter(None, numbers), None)

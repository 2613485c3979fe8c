"""The control groups that this process is in, and the folders where they and their ancestors lie.

Version 1 has a hierarchy for each controller, version 2 one for all; a hybrid machine has both and
each controller lives in one of them. The way up ends where nothing more is shown: inside a
container at its own group.

Source: cgroups(7); cgroup_namespaces(7); proc_pid_cgroup(5).
"""

from collections.abc import Iterator

from msgspec import Struct

from mlbackends.host.host import Host
from mlbackends.host.system.mounts import Mount, mounts

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
"""Those whose limits are read here."""

_FOLDER = "/sys/fs/cgroup"
_DEEPEST = 64


class Group(Struct, frozen=True):
    """Where the process is in one hierarchy.

    version: "v1" or "v2". controllers: those of a v1 hierarchy; () in v2, which has what v1 lacks.
    folders: the folder of its own group, then that of each ancestor that can be seen.
    """

    version: str
    controllers: tuple[str, ...]
    folders: tuple[str, ...]


def groups(host: Host) -> tuple[Group, ...]:
    """Return the process's group in each hierarchy that can be seen, once a host."""
    cached: tuple[Group, ...] | None = host.__dict__.get("_cgroups")
    if cached is None:
        mounted = [mount for mount in mounts(host) if mount.kind in ("cgroup", "cgroup2")]
        if not mounts(host):
            mounted = _customary(host)
        cached = tuple(_groups(host, mounted))
        host.__dict__["_cgroups"] = cached
    return cached


def version(host: Host) -> str:
    """Return "v1", "v2", "hybrid", or "none" where no hierarchy with controllers can be seen."""
    seen = {group.version for group in groups(host)}
    if len(seen) > 1:
        return "hybrid"
    return seen.pop() if seen else "none"


def home(host: Host, controller: str) -> tuple[str, tuple[str, ...]]:
    """Return which version has a controller and the folders of its files, own group first.

    ("", ()) where no hierarchy can be seen. Not every folder has the files of every controller.
    """
    for group in groups(host):
        if controller in group.controllers:
            return group.version, group.folders
    for group in groups(host):
        if group.version == "v2":
            return group.version, group.folders
    return "", ()


def _groups(host: Host, mounted: list[Mount]) -> Iterator[Group]:
    paths = _paths(host)
    first = [mount for mount in mounted if mount.kind == "cgroup"]
    held = {name for mount in first for name in CONTROLLERS if name in mount.options}
    for mount in first:
        names = tuple(name for name in CONTROLLERS if name in mount.options and name in held)
        if names:
            same = [other for other in first if names[0] in other.options]
            held.difference_update(names)
            path = next((paths[name] for name in names if name in paths), "/")
            if at := _best_view(host, path, same):
                yield Group("v1", names, at)
    second = [mount for mount in mounted if mount.kind == "cgroup2"]
    if second and (at := _best_view(host, paths.get("", "/"), second)):
        yield Group("v2", (), at)


def _paths(host: Host) -> dict[str, str]:
    """Return the group's path by controller, as the kernel names it; "" stands for version 2."""
    found: dict[str, str] = {}
    for line in host.read("/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if path.startswith("/"):
            path = path.removesuffix(" (deleted)")
            found.update((name, path) for name in names.split(","))
    return found


def _best_view(host: Host, path: str, mounted: list[Mount]) -> tuple[str, ...]:
    """Return the folders of a group and its ancestors through the mount that shows most of them."""
    views = [_view(host, path, mount) for mount in mounted]
    return max(views, key=lambda view: (view[0], len(view[1])), default=(False, ()))[1]


def _view(host: Host, path: str, mount: Mount) -> tuple[bool, tuple[str, ...]]:
    """Return whether a mount shows the group itself, and the folders it shows, deepest first."""
    if ".." in path.split("/") and not path.startswith(mount.root.rstrip("/") + "/"):
        return False, ()  # a process outside our namespace: what is mounted here does not bind it
    root = mount.root.rstrip("/")
    is_below = path == root or path.startswith(root + "/")
    parts = [part for part in path[len(root) :].split("/") if part] if is_below else []
    if ".." in parts:
        return False, ()
    # Not below: the container's mount shows its own group, under a path that the host gave it.
    at = [mount.point.rstrip("/")]
    at += [f"{at[0]}/{'/'.join(parts[:count])}" for count in range(1, len(parts) + 1)]
    shown = [folder for folder in at[::-1][:_DEEPEST] if host.is_dir(folder)]
    return is_below and shown[:1] == at[-1:], tuple(shown)


def _customary(host: Host) -> list[Mount]:
    """Return the mounts by their customary places, for a machine recorded without its list."""
    if host.is_file(f"{_FOLDER}/cgroup.controllers"):
        return [Mount("/", _FOLDER, "cgroup2")]
    found = []
    for name in host.listdir(_FOLDER):
        kind = "cgroup2" if name == "unified" else "cgroup"
        if not host.is_link(f"{_FOLDER}/{name}"):
            found.append(Mount("/", f"{_FOLDER}/{name}", kind, tuple(name.split(","))))
    return found

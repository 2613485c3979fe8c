"""Which services systemd runs: each has a control group of its name as long as it has processes.

Source: systemd, "Control Group APIs and Delegation"; systemd.slice(5).
"""

from mlbackends.host.host import Host, once_per_host

#: Version 2; the hierarchy of systemd in version 1; version 2 next to version 1.
_SLICES = tuple(f"/sys/fs/cgroup/{place}system.slice" for place in ("", "systemd/", "unified/"))


@once_per_host
def running_services(host: Host) -> frozenset[str]:
    """Return the names of the services that run, without ".service".

    Empty in a container, which does not see them, and on a machine without systemd.
    """
    names = [name for folder in _SLICES for name in host.listdir(folder)]
    return frozenset(name.removesuffix(".service") for name in names if name.endswith(".service"))

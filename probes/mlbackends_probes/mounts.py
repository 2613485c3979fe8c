"""Mounts: the file systems of disks and servers, with the options that decide their speed and safety.

Finds:    every mount but those of the kernel, of containers, of packages and of users' programs, at most 256;
          no call is made on any of them, so a server that does not answer delays nothing.
Caveats:  devices, servers, and options that are not in core/mlbackends/host/system/mount_options.json are
          left out: they name machines, people and keys. What autofs mounts comes and goes, and is separate.
Source:   proc_pid_mountinfo(5); mount(8); nfs(5); mount.cifs(8); Lustre manual, mount.lustre; ext4(5).
"""

from typing import Any

from mlbackends.base.mounts import is_foreign
from mlbackends.base.quantities import one_line
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.system.kernel import Mount, is_node_mount, known_options, mounts
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"
SUMMARY = ("{mount_count} of disks and servers", "{network_count} from servers or other programs")
USUAL = {"network_count": 0}

_MOST = 256
#: Those whose kernel driver makes a file system read-only after an error, by errors=remount-ro or always.
_READ_ONLY_AFTER_ERRORS = ("ext2", "ext3", "ext4", "btrfs")


def find(host: Host) -> Finding:
    """List the mounts by where they are; of several at one place the last one is seen."""
    seen = {mount.point: mount for mount in mounts(host)}
    automatic = tuple(f"{mount.point}/" for mount in mounts(host) if mount.kind == "autofs")
    listed = [mount for mount in seen.values() if is_node_mount(mount.kind, mount.point)]
    # Those of servers first: a node of Kubernetes may have thousands of others.
    listed.sort(key=lambda mount: (not is_foreign(mount.kind), mount.point))
    if not listed:
        reason = Reason("not-found", "no mount of a disk or a server is known")
        return Finding(presence=Presence.ABSENT, reasons=(reason,))
    is_lasting = {mount.point: not f"{mount.point}/".startswith(automatic) for mount in listed}
    lasting = [mount for mount in listed if is_lasting[mount.point]]
    facts = {
        "mounted": [_row(mount) for mount in lasting[:_MOST]],
        "automounted": [_row(mount) for mount in listed if not is_lasting[mount.point]][:_MOST],
        "mount_count": len(lasting),
        "network_count": sum(is_foreign(mount.kind) for mount in lasting),
    }
    return Finding(presence=Presence.FOUND, facts=nonempty(facts))


def _row(mount: Mount) -> dict[str, Any]:
    options = known_options([*mount.flags, *mount.options])
    may_fail = mount.kind in _READ_ONLY_AFTER_ERRORS
    row = {
        "at": one_line(mount.point),
        "type": one_line(mount.kind, 40),
        "is_served": is_foreign(mount.kind) or None,
        "options": sorted({*options} - ({"rw"} if "ro" in options else set())),
        "read_only_after_error": (may_fail and "rw" in mount.flags and mount.options[:1] == ("ro",)) or None,
    }
    return nonempty(row)

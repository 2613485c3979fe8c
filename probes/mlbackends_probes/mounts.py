"""Mounts: the file systems of disks and servers, with the options that decide their speed and safety.

Finds:    every mount but those of the kernel, of containers and of packages, at most 256; no call is made on
          any of them, so a server that does not answer delays nothing.
Caveats:  options that are not in mount_options.json are left out: they name servers, people and keys. The
          device of a disk is left out, because the next boot may number it otherwise.
Source:   proc_pid_mountinfo(5); mount(8); nfs(5); mount.cifs(8); Lustre manual, mount.lustre; ext4(5).
"""

from collections.abc import Sequence
from typing import Any

from mlbackends.base.mounts import is_foreign
from mlbackends.base.patterns import without_secrets
from mlbackends.base.quantities import one_line
from mlbackends.base.reasons import Reason
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.host.system.kernel import Mount, mounts
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"
SUMMARY = ("{network_count} from servers or other programs",)
USUAL = {"network_count": 0}

_TABLE = "host/system/mount_options"
_MOST = 256
#: Those whose kernel driver makes a file system read-only after an error, by errors=remount-ro or always.
_READ_ONLY_AFTER_ERRORS = ("ext2", "ext3", "ext4", "btrfs")
#: Types whose source may begin with a user's name.
_WITH_USERS = ("fuse.", "cifs", "smb", "davfs")


def find(host: Host) -> Finding:
    """List the mounts by where they are; of several at one place the last one is seen."""
    names = table(_TABLE)
    skipped = tuple(f"{point}/" for point in names["skipped_points"])
    seen = {mount.point: mount for mount in mounts(host)}
    kept = [
        mount
        for mount in seen.values()
        if mount.kind not in names["skipped_types"]
        and (mount.kind != "tmpfs" or mount.point in ("/tmp", "/dev/shm"))  # noqa: S108  only compared
        and (mount.point == "/dev/shm" or not f"{mount.point}/".startswith(skipped))  # noqa: S108
    ]
    if not kept:
        return Finding(
            presence=Presence.ABSENT,
            reasons=(Reason("not-found", "no mount of a disk or a server is known"),),
        )
    kept.sort(key=lambda mount: (not is_foreign(mount.kind), mount.point))
    facts = {
        "mounted": sorted(map(_row, kept[:_MOST]), key=lambda row: str(row["at"])),
        "network_count": sum(is_foreign(mount.kind) for mount in kept),
        "left_out": len(kept[_MOST:]) or None,
    }
    return Finding(presence=Presence.FOUND, facts=nonempty(facts))


def _row(mount: Mount) -> dict[str, Any]:
    is_cut_off = (
        mount.kind in _READ_ONLY_AFTER_ERRORS and "rw" in mount.flags and mount.options[:1] == ("ro",)
    )
    row = {
        "at": one_line(mount.point),
        "type": one_line(mount.kind, 40),
        "source": _source(mount) if is_foreign(mount.kind) else "",
        "options": ",".join(_known([*mount.flags, *mount.options])),
        "read_only_after_error": is_cut_off or None,
    }
    return nonempty(row)


def _source(mount: Mount) -> str:
    """Return the server and its folder, without a user's name, a password or a query."""
    text = without_secrets(one_line(mount.source, 200)).partition("?")[0]
    if "@" in text and mount.kind.startswith(_WITH_USERS):
        before, _, place = text.rpartition("@")
        slashes = before[: before.rfind("//") + 2] if "//" in before else ""
        text = slashes + place
    return text


def _known(options: Sequence[str]) -> list[str]:
    """Return the options that name no person, server or key, sorted; "ro" wins over "rw"."""
    names = table(_TABLE)
    known = set()
    for option in options:
        name, sign, value = option.partition("=")
        if option in names["flags"] or (sign and name in names["values"] and len(value) < 40):
            known.add(option)
    return sorted(known - ({"rw"} if "ro" in known else set()))

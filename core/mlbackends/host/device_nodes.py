"""Device nodes: which belong to a PCI device, and whether this user may open them.

Source: Linux Documentation/gpu/drm-uapi (render nodes) and Documentation/accel.
"""

import os
import stat
from collections.abc import Sequence

from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.pci import FOLDER, PciDevice


def render_node(host: Host, address: str) -> str:
    """Return the /dev/dri/renderD* of a PCI device, through which programs compute; "" without one."""
    for name in host.listdir(f"{FOLDER}/{address}/drm"):
        if name.startswith("renderD"):
            return f"/dev/dri/{name}"
    return ""


def accel_nodes(host: Host) -> dict[str, str]:
    """Return the compute accelerators of /sys/class/accel: name -> PCI address ("" without one)."""
    nodes = {}
    for name in host.listdir("/sys/class/accel"):
        link = host.readlink(f"/sys/class/accel/{name}/device")
        nodes[name] = link.rsplit("/", 1)[-1].lower()
    return nodes


def device_nodes(host: Host, prefix: str) -> list[str]:
    """Return the paths below /dev of a prefix and a number: /dev/accel0 of accel, /dev/vfio/0 of vfio/."""
    folder, _, stem = f"/dev/{prefix}".rpartition("/")
    return [
        f"{folder}/{name}"
        for name in host.listdir(folder)
        if name.startswith(stem) and name.removeprefix(stem).isdecimal()
    ]


def denied(host: Host, path: str) -> Reason | None:
    """Return why this user cannot open a device node, None if it can or if that is not known.

    The node is never opened.
    """
    if not host.exists(path) or host.can_open(path):
        return None
    message, hint = f"this user has no read and write access to {path}", ""
    if group := _group_of(host, path):
        message += f": it belongs to the group {group}"
        hint = f"add the user to it (sudo usermod -aG {group} USER) and log in again"
    return Reason("permission-denied", message, hint)


def all_denied(host: Host, paths: Sequence[str]) -> tuple[Reason, ...]:
    """Return why this user cannot open the first of some device nodes, () if it can open any."""
    reasons = [reason for path in paths if (reason := denied(host, path))]
    return (reasons[0],) if paths and len(reasons) == len(paths) else ()


#: Windows' own drivers, which only display.
_WITHOUT_A_MAKER = ("", "basicdisplay", "basicrender")


def unusable(
    host: Host, device: str, card: PciDevice, drivers: Sequence[str], node: str
) -> tuple[Reason, ...]:
    """Return why nothing can compute on a card: a wrong kernel driver, or a node without permission.

    node: the device node through which programs reach the card, "" if that is not known.
    """
    is_windows = host.platform == "win32"
    if is_windows and card.driver.lower() not in _WITHOUT_A_MAKER:
        return ()
    if is_windows or card.driver not in drivers:
        needed = "its maker's" if is_windows else " or ".join(drivers)
        bound = f"is bound to {card.driver}" if card.driver else "has no kernel driver"
        message = f"the {device} at {card.address} {bound}; computing needs {needed}"
        # Loading a driver does not take the card from another one.
        hint = "" if card.driver or is_windows else f"load it: sudo modprobe {drivers[0]}"
        return (Reason("no-driver", message, hint),)
    return all_denied(host, [node] if node else [])


def _group_of(host: Host, path: str) -> str:
    """Return the group that may read and write a node, "" if there is none or it is ours already."""
    if not host.is_live:  # the owner of a node's copy means nothing
        return ""
    try:
        status = os.stat(host.real(path))
    except OSError:
        return ""
    needed = stat.S_IRGRP | stat.S_IWGRP
    ours = host.system("group_ids") or []
    if status.st_mode & needed != needed or status.st_gid in ours:
        return ""
    for line in host.read("/etc/group").splitlines():
        name, _, rest = line.partition(":")
        if rest.split(":")[1:2] == [str(status.st_gid)]:
            return name
    return str(status.st_gid)

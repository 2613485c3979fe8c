"""Clock: whether the system's time is synchronised, by which service, and what counts time.

Finds:    the kernel's state of its clock, the clock source, and the services that set the clock.
Caveats:  the kernel's state is that of the last correction: it becomes unsynchronised when the estimated
          error reaches 16 s, hours after a daemon has stopped. A process whose system calls are filtered
          (seccomp) does not ask for it. Only services of systemd are seen, and none from inside a container.
Source:   adjtimex(2); Linux Documentation/ABI/testing/sysfs-devices-system-clocksource; systemd.slice(5);
          systemd-timesyncd.service(8); chronyd(8).
"""

from mlbackends.base.quantities import word
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.model.records import Finding, Presence, nonempty

GROUP = "machine"
SUMMARY = ("{source}", "synchronised: {is_synchronised}", "by {daemons}")

_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_DAEMONS = ("chrony", "chronyd", "ntp", "ntpd", "ntpsec", "openntpd", "phc2sys", "ptp4l", "systemd-timesyncd")
#: The control groups of services, by version 2, version 1, and version 2 next to it. One exists while its
#: service has processes.
_SLICES = [f"/sys/fs/cgroup/{place}system.slice" for place in ("", "systemd/", "unified/")]
_UNITS = ("{}.service", "system-{}.slice")


def find(host: Host) -> Finding:
    """Ask the kernel, and look for the services."""
    folders = [folder for folder in _SLICES if host.is_dir(folder)]
    found = [
        # Debian calls the service of chronyd chrony.
        {"chrony": "chronyd", "ntp": "ntpd"}.get(name, name)
        for name in _DAEMONS
        if any(host.exists(f"{folder}/{unit.format(name)}") for folder in folders for unit in _UNITS)
    ]
    state = host.system("clock") if host.platform == "linux" else None
    facts = {"source": word(host.read(_SOURCE, 64)), "daemons": sorted(set(found)), **(state or {})}
    if reported := nonempty(facts):
        return Finding(presence=Presence.FOUND, facts=reported)
    reason = Reason("not-found", "neither a service that sets the clock nor the clock source is known")
    return Finding(presence=Presence.ABSENT, reasons=(reason,))

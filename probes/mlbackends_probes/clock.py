"""Clock: whether the system's time is synchronised, by which service, and what counts time.

Finds:    the services that set the clock, the clock source, hardware clocks that PTP uses, and the C library.
Opens:    the C library, which returns whether the kernel counts its clock as synchronised; no server.
Caveats:  the kernel's state is that of the daemon's last correction: it becomes unsynchronised 16 s of
          estimated error later, hours after a daemon stopped. A container shares its machine's clock.
Source:   adjtimex(2); Linux Documentation/ABI/testing/sysfs-devices-system-clocksource, sysfs-ptp;
          systemd-timesyncd.service(8); chronyd(8).
"""

import posixpath

from mlbackends.base.quantities import one_line, word
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.system.services import running_services
from mlbackends.libraries.c_calls import CDLL, ctypes
from mlbackends.model.records import Answer, FactValue, Finding, Library, Presence, nonempty

GROUP = "machine"
SUMMARY = ("{clock_source}", "synchronised: {is_synchronised}", "by {daemons}")

_SOURCE = "/sys/devices/system/clocksource/clocksource0"
#: The C library of this processor: of Debian, of Fedora, of others, and musl.
_LIBRARIES = (
    "/lib/{}-linux-gnu*/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6", "/lib/libc.so.6",
    "/lib/ld-musl-{}.so.1",
)  # fmt: skip
#: STA_UNSYNC of <sys/timex.h>.
_UNSYNCHRONISED = 0x40
_DAEMONS = (
    "chrony", "chronyd", "ntp", "ntpd", "ntpsec", "openntpd", "phc2sys", "ptp4l", "systemd-timesyncd",
)  # fmt: skip
#: What a daemon leaves in /run, where systemd does not run it.
_LEFT = {
    "/run/chrony/chronyd.pid": "chronyd", "/run/chrony.pid": "chronyd", "/run/ntpd.pid": "ntpd",
    "/run/openntpd.pid": "openntpd", "/run/systemd/timesync/synchronized": "systemd-timesyncd",
}  # fmt: skip


def find(host: Host) -> Finding:
    """Read which services run and the clock source, and find the C library."""
    names = {name.partition("@")[0] for name in running_services(host)}.intersection(_DAEMONS)
    if not names:
        names = {name for path, name in _LEFT.items() if host.exists(path)}
    # Debian calls the service of chronyd chrony.
    daemons = sorted({"chronyd" if name == "chrony" else name for name in names})
    facts = {
        "daemons": daemons,
        "clock_source": word(host.read(f"{_SOURCE}/current_clocksource", 64)),
        "clock_sources": sorted(
            filter(None, map(word, host.read(f"{_SOURCE}/available_clocksource", 512).split()))
        ),
        "hardware_clocks": [
            one_line(host.read(path, 256), 64) for path in host.glob("/sys/class/ptp/*/clock_name")[:16]
        ],
    }
    found = (path for pattern in _LIBRARIES for path in host.glob(pattern.replace("{}", host.machine)))
    path = next(found, "") if host.is_live and host.platform == "linux" and host.pid is None else ""
    library = Library("c", path, posixpath.basename(path), found_by="system-folder", wins=True)
    if not (reported := nonempty(facts)) and not path:
        reason = Reason("not-found", "neither a service that sets the clock nor the clock source is known")
        return Finding(presence=Presence.ABSENT, reasons=(reason,))
    return Finding((library,) if path else (), facts=reported, presence=Presence.FOUND)


def load(opened: CDLL, library: Library) -> Answer:
    """Return the kernel's state, which adjtimex(2) reports without changing anything."""

    class Timex(ctypes.Structure):
        _fields_ = (
            ("modes", ctypes.c_uint),  # 0: read only
            *((name, ctypes.c_long) for name in ("offset", "frequency", "maximum_error", "estimated_error")),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_char * 256),
        )

    state = Timex()
    if opened.adjtimex(ctypes.byref(state)) < 0:
        return Answer(library)
    facts: dict[str, FactValue] = {
        "is_synchronised": not state.status & _UNSYNCHRONISED,
        "maximum_error_seconds": state.maximum_error / 1e6,
    }
    return Answer(library, facts=facts)

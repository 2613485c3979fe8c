"""The kernel's settings on macOS and the BSDs, as `sysctl -a` prints them."""

from mlbackends.host.host import Host
from mlbackends.host.quantities import whole_number


def system_controls(host: Host) -> dict[str, str]:
    """Return every setting by its name; asked once a host, {} where there is no such command."""
    cached: dict[str, str] | None = host.__dict__.get("_system_controls")
    if cached is None:
        cached = {}
        for line in host.run("sysctl", "-a").splitlines():
            name, separator, value = line.partition(":")
            if separator and " " not in name and "\t" not in name:
                cached[name] = value.strip()
        host.__dict__["_system_controls"] = cached
    return cached


def control_number(controls: dict[str, str], *names: str) -> int | None:
    """Return the first of these settings that is a positive whole number, None if none is."""
    for name in names:
        number = whole_number(controls.get(name, ""), lowest=1)
        if number is not None:
            return number
    return None

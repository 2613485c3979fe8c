"""What names a machine and its user, for `mlbackends.model.redaction` to take out."""

from mlbackends.host.host import Host
from mlbackends.model.redaction import Names


def names_of(host: Host) -> Names:
    """Return the host's name, the user's, and the home folder, as far as they can be told."""
    # A service or `env -i` has no HOME; what the system has written down of this user is asked too.
    number = str(host.system("user_id"))
    entries = [line.split(":") for line in host.read("/etc/passwd").splitlines()]
    entry = next((each for each in entries if len(each) > 5 and each[2] == number), [""] * 6)
    home = host.env("HOME") or host.env("USERPROFILE") or entry[5]
    user = (
        host.env("USER") or host.env("LOGNAME") or entry[0] or home.rstrip("/").rpartition("/")[2]
    )
    node = host.uname().get("nodename", "") or host.read("/proc/sys/kernel/hostname", 256)
    return Names(node=node, user=user, home=home)

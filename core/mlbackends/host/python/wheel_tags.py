"""What the tags of an installed wheel ask of the C library.

pip compares them when it installs, and nobody afterwards: an environment that was copied into an
older container is not looked at again.

Source: PEP 600 (manylinux_X_Y), PEP 513, 571, 599 for the older names; PEP 427 for the file WHEEL.
"""

from collections.abc import Sequence

from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution
from mlbackends.model.patterns import pattern

LEAST_TOLD = "2.17"
"""Every glibc that is still in use is as new as manylinux2014 asks for."""

_TAG = pattern(r"manylinux(?:_(\d{1,3})_(\d{1,3})|1|2010|2014)_\w+")
_OLDEST = (2, 17)
_WHEEL_LIMIT = 1 << 16


def glibc_needed(host: Host, dists: Sequence[Distribution]) -> dict[str, str]:
    """Return the glibc that wheels ask for, "2.28", by the name of their distribution.

    Of several tags the one that asks least counts. Those are left out that any machine serves.
    """
    found = {}
    for dist in dists:
        if not dist.info.endswith(".dist-info"):
            continue
        text = host.read(f"{dist.info}/WHEEL", _WHEEL_LIMIT)
        tags = [line[4:].strip() for line in text.splitlines() if line.startswith("Tag:")]
        platforms = [part for tag in tags for part in tag.rpartition("-")[2].split(".")]
        asked = [match for part in platforms if (match := _TAG.fullmatch(part))]
        # A tag that asks for no glibc (linux_x86_64, any) says nothing of it.
        if asked and len(asked) == len(platforms):
            least = min((int(one[1]), int(one[2])) if one[1] else _OLDEST for one in asked)
            if least > _OLDEST:
                found[dist.name] = f"{least[0]}.{least[1]}"
    return found

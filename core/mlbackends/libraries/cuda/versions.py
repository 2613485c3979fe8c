"""CUDA's numbers: what 13020 means, and which toolkits a driver serves.

Two rules. A driver runs everything that was built for its own CUDA release or an older one. Since
CUDA 11 it also runs what was built for a newer release of its own major version, except what uses
features that came later ("minor version compatibility").

Source: CUDA Toolkit release notes, tables 2 and 3 (Linux); CUDA Compatibility, tables 1 and 2.
"""

from mlbackends.host.host import Host
from mlbackends.model.patterns import pattern
from mlbackends.model.reasons import Reason

_SHIPPED = (
    ((13, 3), (610, 43, 2)),
    ((13, 2), (595, 45, 4)),
    ((13, 1), (590, 44, 1)),
    ((13, 0), (580, 65, 6)),
    ((12, 9), (575, 51, 3)),
    ((12, 8), (570, 26)),
    ((12, 6), (560, 28, 3)),
    ((12, 5), (555, 42, 2)),
    ((12, 4), (550, 54, 14)),
    ((12, 3), (545, 23, 6)),
    ((12, 2), (535, 54, 3)),
    ((12, 1), (530, 30, 2)),
    ((12, 0), (525, 60, 13)),
    ((11, 8), (520, 61, 5)),
    ((11, 7), (515, 43, 4)),
    ((11, 6), (510, 39, 1)),
    ((11, 5), (495, 29, 5)),
    ((11, 4), (470, 42, 1)),
    ((11, 3), (465, 19, 1)),
    ((11, 2), (460, 27, 3)),
    ((11, 1), (455, 23)),
    ((11, 0), (450, 36, 6)),
    ((10, 2), (440, 33)),
    ((10, 1), (418, 39)),
    ((10, 0), (410, 48)),
    ((9, 2), (396, 26)),
    ((9, 1), (387, 26)),
    ((9, 0), (384, 81)),
    ((8, 0), (367, 48)),
)
"""CUDA release -> the first driver release that came with it, newest first."""

_LEAST = {11: (450,), 12: (525,), 13: (580,)}
"""Major version of CUDA -> the oldest driver that runs anything of it."""

_MAJOR_LIMIT = 100
_RELEASE = pattern(r"(?<!\d)(?<!\d\.)(\d{3})\.(\d{1,4})(?:\.(\d{1,4}))?(?![\d.]*\d)")
_NUMBER = pattern(r"(\d{1,2})\.(\d{1,2})(?!\d)")


def decode(number: int) -> str:
    """Return the release that CUDA's functions and CUDA_VERSION write as a number: 13020 is "13.2".

    "" for what is none; 0 is what the runtime says where there is no driver.
    """
    major, rest = divmod(number, 1000)
    return f"{major}.{rest // 10}" if 1 <= major < _MAJOR_LIMIT and number % 10 == 0 else ""


def release_in(text: str) -> str:
    """Return the driver release that stands in a line or a file name ("580.65.06"), "" without."""
    match = _RELEASE.search(text)
    return match[0] if match else ""


def driver_release(host: Host) -> str:
    """Return the release of the kernel module that is loaded, "" where none is.

    In a container it is the host's: /proc and /sys are not the container's own.
    """
    lines = host.read("/proc/driver/nvidia/version", 4096).splitlines()
    told = next((line for line in lines if line.startswith("NVRM version:")), "")
    return release_in(told) or release_in(host.read("/sys/module/nvidia/version", 256))


def cuda_of_driver(release: str) -> str:
    """Return the newest CUDA release whose features a driver has in full ("13.0" for 580.95.05).

    "" for a driver older than 8.0's. For one newer than the table, the newest CUDA of the table:
    ask the driver itself (cuDriverGetVersion) for the truth.
    """
    driver = _parts(release)
    for cuda, needed in _SHIPPED:
        if driver and driver >= needed:
            return f"{cuda[0]}.{cuda[1]}"
    return ""


def driver_for(cuda: str) -> str:
    """Return the oldest driver that runs programs built for a CUDA release ("580" for 13.2).

    "" where the tables do not tell.
    """
    match = _NUMBER.match(cuda)
    if not match:
        return ""
    major, minor = int(match[1]), int(match[2])
    least = _LEAST.get(major) or dict(_SHIPPED).get((major, minor))
    return ".".join(f"{part:02}" for part in least) if least else ""


def too_old_for(release: str, cuda: str) -> bool | None:
    """Tell whether a driver is too old for programs of a CUDA release; None where not known."""
    driver, needed = _parts(release), _parts(driver_for(cuda))
    return driver < needed if driver and needed else None


def driver_warning(release: str, cuda: str, what: str) -> Reason | None:
    """Return the warning that a driver is too old for `what`, built for a CUDA release, or None."""
    if not too_old_for(release, cuda):
        return None
    serves = cuda_of_driver(release)
    older = f" (it serves CUDA {serves})" if serves else ""
    return Reason(
        "driver-too-old",
        f"{what} needs driver {driver_for(cuda)} or newer; the driver here is {release}{older}",
        f"install driver {driver_for(cuda)} or newer, or use what was built for an older CUDA",
    )


def _parts(release: str) -> tuple[int, ...]:
    parts = release.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()

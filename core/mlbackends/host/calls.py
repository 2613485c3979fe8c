"""The questions about the live machine that only a call answers; a recorded host has them in `host.json`.

Each function returns None where this platform cannot tell.
"""

import os
from collections.abc import Callable
from typing import Any


def libc() -> str | None:
    """Return "glibc 2.36"; None for another C library or where it does not tell."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        return None


def page_size() -> int | None:
    """Return the memory page's size in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def clock_ticks() -> int | None:
    """Return the kernel's clock ticks in a second, the unit of times in /proc/PID/stat."""
    try:
        return os.sysconf("SC_CLK_TCK")
    except (AttributeError, ValueError, OSError):
        return None


def cpu_count() -> int | None:
    """Return what `os.cpu_count()` says, which knows nothing of limits."""
    return os.cpu_count()


def user_id() -> int | None:
    """Return the effective user id."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def group_ids() -> list[int] | None:
    """Return the group ids of this process, sorted."""
    return sorted({*os.getgroups(), os.getegid()}) if hasattr(os, "getgroups") else None


CALLS: dict[str, Callable[[], Any]] = {
    "libc": libc,
    "page_size": page_size,
    "clock_ticks": clock_ticks,
    "cpu_count": cpu_count,
    "user_id": user_id,
    "group_ids": group_ids,
}

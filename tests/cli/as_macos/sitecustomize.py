"""What a process of Linux must look like to pass for one of macOS: see test_as_macos.py.

Nothing that macOS lacks is left: functions of os, signals, /proc and /sys. psutil, which macOS has, is
a stand-in, for it was compiled for Linux.
"""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import select
import signal
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

#: By module, what Python on Linux has and on macOS has not (Python's documentation, "Availability").
LINUX_ONLY = {
    os: """sched_getaffinity sched_setaffinity sched_setscheduler sched_getparam pidfd_open memfd_create
        eventfd splice copy_file_range getrandom posix_fadvise posix_fallocate setns unshare getresuid
        setresuid pipe2 listxattr getxattr setxattr waitid O_PATH O_TMPFILE O_NOATIME O_DIRECT""",
    signal: """sigwaitinfo sigtimedwait pidfd_send_signal SIGRTMIN SIGRTMAX SIGPWR
        SIGSTKFLT SIGPOLL SIGCLD""",
    select: "epoll EPOLLIN",
    time: "CLOCK_BOOTTIME CLOCK_TAI",
}
ABSENT = ("/proc", "/sys", "/dev/shm", "/etc/os-release", "/usr/lib/os-release", "/.dockerenv")
MEMORY = 25_769_803_776


def without_linux(function: Any) -> Any:
    """Return a function of files for which no path of Linux is there."""

    @functools.wraps(function)
    def wrapped(path: Any = ".", *arguments: Any, **named: Any) -> Any:
        text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        if text.startswith(ABSENT):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)
        return function(path, *arguments, **named)

    return wrapped


def uname() -> Any:
    fields = ("Darwin", "air.local", "23.5.0", "Darwin Kernel Version 23.5.0", "arm64")
    return os.uname_result(fields)


for module, names in LINUX_ONLY.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in ("open", "stat", "lstat", "listdir", "scandir", "readlink", "access", "statvfs"):
    setattr(os, name, without_linux(getattr(os, name)))
builtins.open = io.open = without_linux(open)
os.uname = uname
sys.platform = "darwin"
sys.executable = os.environ["AS_MACOS_PYTHON"]  # workers start without site: it brings this file

psutil = ModuleType("psutil")
vars(psutil).update(
    Error=OSError,
    NoSuchProcess=ProcessLookupError,
    cpu_count=lambda logical=True: 8,
    virtual_memory=lambda: SimpleNamespace(total=MEMORY, available=MEMORY // 2, free=MEMORY // 4),
    swap_memory=lambda: SimpleNamespace(total=0, free=0),
)
sys.modules["psutil"] = psutil

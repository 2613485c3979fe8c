"""No module of ours needs what Windows has not, in order to be imported."""

from __future__ import annotations

import subprocess
import sys

IMPORT_ALL = """
import importlib, os, pkgutil, select, signal, sys, types
import asyncio, concurrent.futures, ctypes, logging, multiprocessing.connection, pathlib, shutil, tempfile
import click, click.shell_completion, msgspec, numpy, psutil, pytest
missing = "fcntl termios resource pwd grp pty tty syslog _posixsubprocess"
of_signal = (
    "SIGHUP SIGKILL SIGQUIT SIGCHLD SIGPIPE SIGUSR1 SIGUSR2 SIGXFSZ SIGSTOP SIGCONT SIGTSTP SIGALRM SIGWINCH"
    " sigtimedwait pthread_sigmask setitimer"
)
of_os = (
    "O_NONBLOCK O_CLOEXEC O_NOCTTY fork killpg uname geteuid getuid setsid waitid pread set_blocking WNOHANG"
    " sched_getaffinity register_at_fork statvfs posix_spawn memfd_create openpty getloadavg sysconf confstr"
    " RTLD_NOLOAD RTLD_LAZY POSIX_SPAWN_DUP2"
)
sys.modules.update(dict.fromkeys(missing.split()))
for module, names in ((signal, of_signal), (os, of_os), (select, "poll epoll")):
    for name in names.split():
        vars(module).pop(name, None)
for name in ("msvcrt", "winreg"):
    sys.modules[name] = types.ModuleType(name)
os.name = "nt"
pathlib.WindowsPath = pathlib.PosixPath  # a Path, where os.name says Windows, is one
failed = []
for package in ("mlbackends", "mlbackends_cli", "mlbackends_probes", "mlbackends_kernels"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if found.name.endswith(("__main__", "sitecustomize")) or ".conform.programs." in found.name:
            continue
        try:
            importlib.import_module(found.name)
        except Exception as error:
            is_of_windows = ".windows." in found.name and isinstance(error, AssertionError)
            if getattr(error, "name", "") not in ("torch", "triton", "jax", "nt") and not is_of_windows:
                failed.append(f"{found.name}: {type(error).__name__}: {error}")
print("\\n".join(failed))
"""


def test_every_module_is_imported_without_what_windows_lacks() -> None:
    command = [sys.executable, "-c", IMPORT_ALL]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    assert printed.strip() == ""

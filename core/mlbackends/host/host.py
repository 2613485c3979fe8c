"""The machine as a probe sees it: files under a root, the environment, commands, uname.

`Host()` is the live machine. `Host("/some/folder")` is a recorded one: a folder that holds /proc, /sys and
others, or one with `root/`, `host.json` and `commands/` as `Recording` writes them, or an archive of such a
folder, which is read into memory. A probe that uses nothing else works on both, and its `find` is tested on
recorded machines.

`host.json` has what no file contains, the fields of `recorded.Description`; a recorded host without it has an
empty environment, and `None` for what only the live machine could report. `extracts.json` has what was read
out of large files, such as libraries, instead of the files.
"""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from mlbackends.base import mounts
from mlbackends.base.errors import NotALibrary
from mlbackends.base.quantities import to_int
from mlbackends.base.writable import clean, is_text
from mlbackends.host.files import READ_LIMIT, read_regular, with_slashes

if sys.platform == "win32":
    from mlbackends.host.windows import calls, processes

if TYPE_CHECKING:
    from mlbackends.host.recorded import Description

#: The most links on the path to one file, as in Linux.
_LINK_LIMIT = 40

#: py-cpuinfo takes 1.5 s; its own checks may hang on a system that it does not know.
_CPUINFO_SECONDS = 10.0

#: Not a folder on any system, so no path below it exists.
_NOWHERE = "/dev/null"

#: Marks, in the cache of a host, what did not answer while a result was made.
_silent = object()

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def once_per_host(read: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function whose first argument is a host, so that it runs once for each host and arguments.

    Its callers share the result and must not change it.
    """

    @wraps(read)
    def cached(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        cache: dict[Any, Any] = arguments[0].cache  # type: ignore[attr-defined]
        key = (read, *arguments[1:])
        silent: list[tuple[str, str]] = arguments[0].silent  # type: ignore[attr-defined]
        if key not in cache:
            before = len(silent)
            cache[key] = read(*arguments, **options)
            if silent[before:]:
                cache[_silent, key] = silent[before:]
        elif silent:
            silent += cache.get((_silent, key), ())
        return cache[key]  # type: ignore[no-any-return]

    return cached


class Host:
    """One machine. Its methods return "", [] or None for what is missing, forbidden or garbage.

    root: the folder that represents "/", or an archive. pid: the process that is inspected: its /proc/self,
    environment and affinity are used instead of ours. python: the interpreter whose packages are inspected,
    with the fields of `Host.python`. timeout: seconds after which a mount counts as not answering.
    """

    #: Whether all that is read of it is kept, in a recording that is being made.
    is_kept = False
    #: Makes a call with a path on the disk, or in the archive that replaces it.
    _on_disk: "Callable[..., Any]" = staticmethod(mounts.call)

    def __init__(
        self,
        root: str = "/",
        *,
        pid: int | None = None,
        python: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        timeout: float = 5.0,
    ) -> None:
        #: Paths that exist and may not be read, in the order they were met.
        self.denied: list[str] = []
        #: Each call on a mount that did not answer, or no longer is called: the mount and the path.
        self.silent: list[tuple[str, str]] = []
        self.timeout = timeout
        self.pid = pid
        self._commands = ""
        self._python = python
        self._extracts: dict[str, dict[str, Any]] = {}
        #: What functions under `once_per_host` returned.
        self.cache: dict[Any, Any] = {}
        self.is_live = os.path.abspath(root) == os.path.abspath(os.sep)
        self.root = ""
        if pid is not None and self.is_live:
            with suppress(OSError):  # one that has its own mounts, as in a container
                if os.readlink(f"/proc/{pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"):
                    self.root = f"/proc/{pid}/root"
        #: What no file of a recorded machine contains; None for the live one.
        self._recorded: Description | None = None
        if not self.is_live:
            from mlbackends.host.recorded import opened

            self._recorded, self._extracts, self._commands, self.root, tree = mounts.call(
                opened, root, environment is not None, seconds=timeout
            )
            self._on_disk = tree.call if tree else mounts.call
        variables: Mapping[str, str]
        if environment is not None:
            variables = environment
        elif pid is not None and sys.platform == "win32":
            variables = processes.environment(pid)
        elif pid is not None:
            data = self.read_bytes("/proc/self/environ").decode(errors="surrogateescape")
            variables = dict(item.split("=", 1) for item in data.split("\0") if "=" in item)
        else:
            variables = self._recorded.environment if self._recorded else os.environ
        # A record holds text only. One folder of LD_LIBRARY_PATH that is not UTF-8 leaves the others.
        is_windows = self.platform == "win32"  # where their names have no case
        self.environment = {
            name.upper() if is_windows else name: clean(value)
            for name, value in variables.items()
            if is_text(name)
        }

    # ---- files -----------------------------------------------------------------------------

    def real(self, path: str) -> str:
        """Return the place of `path` on this machine's disk, with links resolved below the root.

        A link never leads out of a recorded root, whatever its target.
        """
        if self.pid is not None and f"{path}/".startswith("/proc/self/"):
            path = f"/proc/{self.pid}{path[10:]}"
        if self._is_of_this_machine(path):
            # Under Windows a path without a drive would be one of whatever drive is the current one.
            return _NOWHERE + path if os.name == "nt" and path[:1] == "/" else path
        # Links in a loop are followed here: the system would follow them out of the root.
        resolved_path = self._resolve(path)
        return self._below_root(resolved_path) if resolved_path else _NOWHERE + path

    def _below_root(self, path: str) -> str:
        return self.root + (path if path[:1] == "/" else f"/{path}")

    def _is_of_this_machine(self, path: str) -> bool:
        """Return whether a path is one of this machine's own, as the kernel's files of a container are."""
        return not self.root or (self.is_live and path.startswith(("/proc/", "/sys/")))

    def _resolve(self, path: str) -> str:
        """Return a path without links, as the recorded machine names it; "" for links in a loop."""
        return resolved(path, self._target_of)

    @once_per_host
    def _target_of(self, path: str) -> str:
        """Return the target of a link below the root, "" if it is not a link."""
        try:
            return str(self._on_disk(os.readlink, self._below_root(path)))
        except (OSError, ValueError):  # a path from a record may hold a NUL
            return ""

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> bytes:
        """Return a regular file's first `limit` bytes; b"" where it cannot be read."""
        return self._call(read_regular, path, limit, default=b"")

    def _call(self, function: Callable[..., Result], path: str, *rest: Any, default: Result) -> Result:
        """Return a function's result for the place of a path, or the default if the call fails."""
        try:
            return self._on_disk(function, self.real(path), *rest, seconds=self.timeout)  # type: ignore[no-any-return]
        except (OSError, ValueError) as error:  # a folder, a device, an attribute that refuses
            self.note(path, error)
        return default

    def note(self, path: str, error: Exception) -> None:
        """Note that a path may not be read, or did not answer."""
        if isinstance(error, mounts.NotAnswering):
            self.silent.append((error.mount, path))
        elif isinstance(error, PermissionError) and path not in self.denied:
            self.denied.append(path)

    def read(self, path: str, limit: int = READ_LIMIT) -> str:
        """Return a file's text, stripped at the end; "" if it cannot be read."""
        return self.read_bytes(path, limit).decode(errors="replace").rstrip("\n\0 ")

    def read_int(self, path: str) -> int | None:
        """Return a file's content as a whole number (decimal or 0x...), None if it is not a number."""
        return to_int(self.read(path, 4096))

    def exists(self, path: str) -> bool:
        """Return whether something exists; a link to nothing does not."""
        return self._call(os.path.exists, path, default=False)

    def is_file(self, path: str) -> bool:
        """Return whether a path leads to a regular file."""
        return self._call(os.path.isfile, path, default=False)

    def is_dir(self, path: str) -> bool:
        """Return whether a path leads to a folder."""
        return self._call(os.path.isdir, path, default=False)

    def is_link(self, path: str) -> bool:
        """Return whether the last part of the path is a symbolic link."""
        return bool(self.readlink(path))

    def can_open(self, path: str) -> bool:
        """Return whether this user may read and write a device node, which is never opened.

        On a recorded host `denied_nodes` among its system calls lists those that it may not.
        """
        if not self.is_live:
            return path not in (self.system("denied_nodes") or ())
        return self._call(os.access, path, os.R_OK | os.W_OK, default=False)

    def closed_above(self, path: str) -> str:
        """Return the folder that keeps this user from a path, "" if none does."""
        folder = os.path.dirname(path)
        while folder.strip("/") and not self.is_dir(folder):
            folder = os.path.dirname(folder)
        # What is listed and not found is in a folder whose files may not be looked up.
        names = (f"{folder}/{name}" for name in self.listdir(folder)[:1])
        is_closed = any(not self._call(os.path.lexists, name, default=True) for name in names)
        return folder if (self.is_live and is_closed) or folder in self.denied else ""

    def size(self, path: str) -> int:
        """Return a file's size in bytes, 0 if it does not exist.

        A recorded host may hold only a part of a file, and then has the size separately.
        """
        if self._recorded and path in self._recorded.sizes:
            return self._recorded.sizes[path]
        return self._call(os.path.getsize, path, default=0)

    @once_per_host
    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; [] if it cannot be read.

        Names that are not UTF-8 are left out: nothing that we look for has one, and no record can hold it.
        """
        listing: Callable[..., list[str]] = os.listdir
        nothing: list[str] = []
        return sorted(filter(is_text, self._call(listing, path, default=nothing)))

    @once_per_host
    def glob(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern with `*`, `?` or `[...]` in any part, sorted."""
        paths, parts = [""], pattern.strip("/").split("/")
        if parts[0][1:] == ":":
            paths = [parts.pop(0)]
        for part in parts:
            if any(sign in part for sign in "*?["):
                paths = [
                    f"{base}/{name}"
                    for base in paths
                    for name in self.listdir(base or "/")
                    if fnmatchcase(name, part) and not (name[0] == "." and part[0] != ".")
                ]
            else:
                paths = [f"{base}/{part}" for base in paths]
        return [path for path in paths if self.exists(path)]

    def readlink(self, path: str) -> str:
        """Return the target of a symbolic link, "" if the path is not one."""
        folder, name = os.path.split(path)
        at = os.path.join(self.real(folder), name)
        try:
            return str(self._on_disk(os.readlink, at, seconds=self.timeout))
        except (OSError, ValueError) as error:
            self.note(path, error)
        return ""

    @once_per_host
    def realpath(self, path: str) -> str:
        """Return the path with every link resolved, as this machine names it."""
        if not self._is_of_this_machine(path):
            return self._resolve(path) or path
        return with_slashes(self._call(os.path.realpath, path, default=path))

    def extracted(self, path: str, read: Callable[[str], Result], kind: Any, name: str = "") -> Result:
        """Return what `read` extracts from a file, whose place on the disk it gets.

        kind: the type of the result, which JSON must be able to hold. name: the result's name in the
        `extracts.json` of a recorded host, which need not have the file itself; that of `read` by default.
        Raises what `read` raises, and `mounts.NotAnswering`; as there, `read` is importable by its name.
        """
        real = self.realpath(path)
        stored = self._extracts.get(real, {}).get(name or read.__name__)
        if stored is not None:
            try:
                return msgspec.convert(stored, kind)  # type: ignore[no-any-return]
            except msgspec.ValidationError:
                if isinstance(stored, str):
                    raise NotALibrary(stored) from None
        try:
            return self._on_disk(read, self.real(real), seconds=self.timeout)  # type: ignore[no-any-return]
        except mounts.NotAnswering as error:
            self.note(path, error)
            raise

    # ---- what no file contains -----------------------------------------------------------------

    def env(self, name: str, default: str = "") -> str:
        """Return an environment variable of the process that is inspected."""
        return self.environment.get(name, default)

    def folders(self, variable: str) -> list[str]:
        """Return the folders that a variable lists, with slashes on Windows too; an empty one is "."."""
        listed = self.env(variable).split(";" if self.platform == "win32" else ":")
        if self.platform == "win32":
            listed = [folder.strip(' "').replace("\\", "/") for folder in listed]
        return [path.rstrip("/") or path or "." for path in listed] if self.env(variable) else []

    @property
    def platform(self) -> str:
        """The operating system as `sys.platform` spells it: linux, darwin, win32."""
        return self._recorded.platform if self._recorded else sys.platform

    @once_per_host
    def uname(self) -> dict[str, str]:
        """Return sysname, nodename, release, version and machine; {} if they are not recorded."""
        if self._recorded:
            return self._recorded.uname
        keys = ("sysname", "nodename", "release", "version", "machine")
        if sys.platform == "win32":
            return dict(zip(keys, calls.names(), strict=True))
        return dict(zip(keys, os.uname(), strict=True))

    @property
    def machine(self) -> str:
        """The processor as the kernel spells it: x86_64, aarch64, ppc64le, s390x, riscv64.

        Where no kernel names it, as in an image, it is that of the interpreter.
        """
        return self.uname().get("machine", "") or str(self.python.get("machine", ""))

    def affinity(self) -> tuple[int, ...] | None:
        """Return the CPUs that the process may run on, None if that is not known."""
        if self._recorded:
            return self._recorded.affinity
        if sys.platform == "win32":
            return calls.affinity(self.pid)
        try:
            return tuple(sorted(os.sched_getaffinity(self.pid or 0)))
        except (AttributeError, OSError):
            return None

    @property
    def is_ours(self) -> bool:
        """Whether the process that is inspected is this user's; without one it is this process."""
        if sys.platform == "win32" and self.pid is not None:
            return processes.is_ours(self.pid)
        try:
            return self.pid is None or os.stat(f"/proc/{self.pid}").st_uid == os.geteuid()
        except (AttributeError, OSError):
            return False

    @once_per_host
    def mapped_files(self) -> dict[str, bool]:
        """Return the files that the inspected process has mapped, and whether each still exists.

        One that was replaced on the disk does not; on Windows modules are locked and cannot be replaced.
        {} if no process is inspected.
        """
        if sys.platform == "win32" and self.pid is not None:
            try:
                return dict.fromkeys(map(with_slashes, processes.modules(self.pid)), True)
            except OSError:
                return {}
        files: dict[str, bool] = {}
        text = self.read("/proc/self/maps", 32 << 20) if self.pid is not None else ""
        for line in text.splitlines():
            parts = line.split(None, 5)
            if len(parts) == 6 and parts[5].startswith("/"):
                path = parts[5].removesuffix(" (deleted)")
                files[path] = files.get(path, True) and path == parts[5]
        return files

    def disk(self, path: str) -> tuple[int, int] | None:
        """Return a file system's total and free bytes, None if they are not known."""
        if self._recorded:
            return self._recorded.disks.get(path)
        if sys.platform == "win32":
            return self._call(calls.disk, path, default=None)
        status = self._call(os.statvfs, path, default=None)
        if status is None:
            return None
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize

    def system(self, name: str) -> Any:
        """Return what only a call reports ("libc", "page_size", ...), recorded or live; None if unknown."""
        if self._recorded:
            return getattr(self._recorded.system, name, None)
        if name not in self.cache:
            answers = _CALLS
            if sys.platform == "win32":
                answers = {**_CALLS, **calls.CALLS}
            try:
                self.cache[name] = answers[name]()
            except (AttributeError, KeyError, ValueError, OSError, msgspec.DecodeError):
                self.cache[name] = None  # of another system
        return self.cache[name]

    def registry(self, key: str, *names: str) -> dict[str, Any]:
        """Return values of a key of Windows' registry, those that exist: texts, numbers, lists of texts.

        names: of the values; all without any, which is only for keys that identify no person or machine.
        key: begins with HKLM or HKCU. Binary values are returned as hexadecimal digits.
        """
        if self._recorded:
            values = self._recorded.registry.get(key, {})
            return {name: values[name] for name in names or values if name in values}
        if sys.platform == "win32":
            return calls.registry_values(key, names)
        return {}

    def registry_keys(self, key: str) -> list[str]:
        """Return the names of the keys below a key of Windows' registry."""
        if self._recorded:
            return self._recorded.registry_keys.get(key, [])
        if sys.platform == "win32":
            return calls.registry_keys(key)
        return []

    @property
    def python(self) -> dict[str, Any]:
        """The interpreter that is inspected: executable, version, prefix, base_prefix, path (folders)."""
        if self._python is None and self._recorded:
            self._python = msgspec.to_builtins(self._recorded.python)
        elif self._python is None:
            absolute = []
            for entry in sys.path:
                with suppress(OSError):  # relative, and the current folder was deleted
                    absolute.append(os.path.abspath(entry))
            self._python = {
                "executable": with_slashes(sys.executable),
                "version": ".".join(map(str, sys.version_info[:3])),
                "implementation": sys.implementation.name,
                "prefix": with_slashes(sys.prefix),
                "base_prefix": with_slashes(sys.base_prefix),
                "path": [
                    folder
                    for folder in map(with_slashes, absolute)
                    if mounts.call_or(True, os.path.isdir, folder)
                ],
            }
        return self._python or {}

    def run(self, *command: str, timeout: float = 5.0) -> str:
        """Return a command's standard output; "" if it is missing, fails or takes too long.

        On a recorded host the output is the file `commands/NAME ARGUMENTS`, with "/" as "_".
        """
        if not self.is_live:
            path = os.path.join(self._commands, " ".join(command).replace("/", "_"))
            try:
                # A link could lead anywhere, and no recording has one.
                is_link = self._on_disk(os.path.islink, path)
                return "" if is_link else self._on_disk(read_regular, path).decode(errors="replace")
            except OSError:
                return ""
        from mlbackends.host.command import outcome_of

        outcome = outcome_of(command, timeout, self.environment)
        return outcome.output if outcome.status == 0 else ""


def resolved(path: str, target_of: Callable[[str], str]) -> str:
    """Return a path without links, a path of Windows from its drive on; "" for links in a loop.

    target_of: returns a link's target, given its path without links, and "" if it is not a link.
    """
    top = "" if path[1:2] == ":" else "/"
    todo = [part for part in path.split("/") if part][::-1]
    done: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == ".":
            continue
        if part == "..":
            done = done[:-1]
            continue
        target = target_of(top + "/".join([*done, part]))
        if not target:
            done.append(part)
            continue
        links += 1
        if links > _LINK_LIMIT:
            return ""
        if target.startswith("/"):
            done = []
        todo.extend(piece for piece in target.split("/")[::-1] if piece)
    return top + "/".join(done)


def _py_cpuinfo() -> dict[str, Any] | None:
    """Return what py-cpuinfo reports, from a child process with a time limit."""
    from mlbackends.host.command import outcome_of

    command = (sys.executable, "-P", "-m", "cpuinfo", "--json")
    output = outcome_of(command, _CPUINFO_SECONDS, os.environ).output
    return msgspec.json.decode(output, type=dict[str, Any]) if output.strip() else None


def _kernel_clock() -> dict[str, Any] | None:
    """Return the state of the kernel's clock, which adjtimex(2) reports without changing anything.

    None where a filter of system calls might end the process for it, as systemd's do.
    """
    import ctypes

    with open("/proc/self/status", "rb") as file:
        if b"\nSeccomp:\t2" in file.read():
            return None

    class Timex(ctypes.Structure):
        # modes: 0 to read only. numbers: offset, frequency, maximum and estimated error in microseconds.
        _fields_ = (("modes", ctypes.c_uint), ("numbers", ctypes.c_long * 4), ("status", ctypes.c_int),
                    ("rest", ctypes.c_char * 512))  # fmt: skip

    state = Timex()
    if ctypes.CDLL(None).adjtimex(ctypes.byref(state)) < 0:
        return None
    is_synchronised = not state.status & 0x40  # STA_UNSYNC of <sys/timex.h>
    return {"is_synchronised": is_synchronised, "maximum_error_seconds": state.numbers[2] / 1e6}


#: What only a call returns, by the names of `system` in host.json: "glibc 2.36", bytes, ticks per second.
_CALLS: dict[str, Callable[[], Any]] = {
    "libc": lambda: os.confstr("CS_GNU_LIBC_VERSION"),
    "page_size": lambda: os.sysconf("SC_PAGE_SIZE"),
    "clock_ticks": lambda: os.sysconf("SC_CLK_TCK"),
    "clock": _kernel_clock,
    "cpu_count": os.cpu_count,
    "py_cpuinfo": _py_cpuinfo,
    "user_id": lambda: os.geteuid(),  # noqa: PLW0108  Windows has none
    "group_ids": lambda: sorted({*os.getgroups(), os.getegid()}),
}

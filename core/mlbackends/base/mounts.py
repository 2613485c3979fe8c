"""Calls on paths where a file system may never answer: network mounts and FUSE.

A read there can sleep in the kernel, where no signal ends it, and a thread that sleeps so keeps its process
from ending. So such a call is made in a process that can be left behind, within a time limit, and a mount
that was silent is not called again for a minute. On any other path the call is made directly, and so it
is on the mount that this code was read from, since that has answered.

Sources: proc_pid_mountinfo(5); request_wait_answer in the kernel's fs/fuse/dev.c; for the types
mnt_fstype_is_netfs of libmount, and the fs folder of the kernel.
"""

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from mlbackends.base.errors import MlBackendsError

#: Types of file systems that another machine or program serves, as each "fuse.NAME" is.
_FOREIGN = frozenset({
    "9p", "acfs", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse", "fuseblk", "gfs2",
    "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "prl_fs", "pvfs2",
    "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs", "wekafs",
})  # fmt: skip

_OF_THE_KERNEL = ("/proc/", "/sys/", "/dev/")
#: What leads out of /proc/PID.
_LINKS_ANYWHERE = ("/exe", "/cwd", "/root", "/fd/", "/map_files/")
#: An autofs mount that every systemd has, and nothing here reads.
_UNUSED = "/proc/sys/fs/binfmt_misc"

_SECONDS = 5.0
_VALID_SECONDS = 60.0
_LINK_LIMIT = 40
_PROGRAMS = (".exe", ".com", ".bat", ".cmd")

Result = TypeVar("Result")


class NotAnswering(MlBackendsError, TimeoutError):
    """A file system gave no answer. filename: the path; mount: where that file system is mounted."""

    def __init__(self, path: str, mount: str, kind: str) -> None:
        self.mount, why = mount, f"the {kind} file system at {mount} does not answer"
        super().__init__(f"{path} cannot be read: {why}")
        self.errno, self.strerror, self.filename = errno.ETIMEDOUT, why, path

    def __str__(self) -> str:
        return str(self.args[0])


def is_foreign(kind: str) -> bool:
    """Return whether another machine or program serves file systems of this type."""
    return kind in _FOREIGN or kind.startswith("fuse.")


def call(function: Callable[..., Result], path: str, *rest: Any, seconds: float = _SECONDS) -> Result:
    """Return function(path, *rest), made where it can be given up if the path leads to a foreign mount.

    function: importable by its name, and with a result that can be pickled.
    Raises what the function raises, and NotAnswering.
    """
    table = current()
    if not table.foreign or not (mount := table.mount_of(path)):
        return function(path, *rest)
    failure = NotAnswering(path, mount, table.foreign[mount])
    if mount in table.silent:
        raise failure
    from mlbackends.base.reader import TooLate, answer

    try:
        # Not abspath, for which a link and ".." behind it are nothing.
        whole = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
        result: Result = answer(partial(environment, trusting=False), seconds, function, whole, *rest)
    except TooLate:
        table.silent.add(mount)
        raise failure from None
    return result


def check(path: str) -> None:
    """Raise NotAnswering where a path leads to a mount that gives no answer."""
    try:
        call(_touch, path)
    except NotAnswering:
        raise
    except (OSError, ValueError):  # opening it will report that
        pass


def check_temporary() -> None:
    """Raise NotAnswering where a variable names a folder for temporary files that gives no answer."""
    for variable in ("TMPDIR", "TEMP", "TMP"):
        check(os.environ.get(variable, "/"))


def _touch(path: str) -> None:
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        os.listdir(path)
    elif stat.S_ISREG(mode):
        # Not waiting: /proc/kmsg is a regular file whose next byte may never come.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            os.read(handle, 1)
        finally:
            os.close(handle)


def mount_of(path: str) -> str:
    """Return the mount that a path leads to and that may not answer, "" for none; no call is made on it."""
    table = current()
    return table.mount_of(path) if table.foreign else ""


def call_or(default: Result, function: Callable[[str], Result], path: str) -> Result:
    """Return function(path) as `call` does, the default where the path's mount does not answer."""
    try:
        return call(function, path)
    except NotAnswering:
        return default


def is_silent(path: str) -> bool:
    """Return whether a path leads to a mount that did not answer."""
    return mount_of(path) in current().silent


def environment(*, trusting: bool) -> dict[str, str]:
    """Return our variables for a program of ours, whose start would wait for a folder that does not answer.

    LD_LIBRARY_PATH is without those on mounts that were silent, and unless trusting on any that may be.
    """
    variables, table = dict(os.environ), current()
    left_out = table.silent if trusting else table.foreign
    if left_out and (folders := variables.get("LD_LIBRARY_PATH")):
        folders_left = [folder for folder in folders.split(":") if mount_of(folder) not in left_out]
        variables["LD_LIBRARY_PATH"] = ":".join(folders_left)
    return variables


def which(program: str, search_path: str, seconds: float = _SECONDS) -> str:
    """Return the file that a program's name leads to, "" for none; folders that do not answer are skipped.

    On Windows only what CreateProcess starts is a program, whatever PATHEXT lists.
    Raises NotAnswering for a program that is named by such a path.
    """
    import shutil

    try:
        if os.path.dirname(program) or not current().foreign:
            path = call(shutil.which, program, os.F_OK | os.X_OK, search_path, seconds=seconds) or ""
            return path if os.name != "nt" or path.lower().endswith(_PROGRAMS) else ""
        for folder in search_path.split(os.pathsep) if search_path else ():
            with contextlib.suppress(NotAnswering):
                path = os.path.join(folder or os.curdir, program)
                if found := call(shutil.which, path, seconds=seconds):
                    return found
    except ValueError:  # a null byte
        pass
    return ""


class Mounts:
    """The mounts of this moment.

    foreign: the types of those that may not answer, by their folders. silent: those that did not.
    """

    def __init__(self, listing: str = "/proc/self/mountinfo") -> None:
        self.read_at = time.monotonic()
        self.foreign: dict[str, str] = {}
        self.silent: set[str] = set()
        self._in_the_kernel = False
        #: Where folders lead.
        self._folders: dict[str, str] = {}
        #: The target of each path that was met, "" if it is not a link.
        self._targets: dict[str, str] = {}
        try:
            with open(listing, "rb") as file:
                lines = file.read().split(b"\n")
        except OSError:  # another system
            return
        for line in lines:
            head, _, tail = line.partition(b" - ")
            kind = os.fsdecode(tail.split(b" ", 1)[0])
            if is_foreign(kind):
                at = head.split(b" ")[4].decode("unicode_escape").encode("latin-1")
                self.foreign[os.fsdecode(at)] = kind
        for unused in ("/", _UNUSED):
            self.foreign.pop(unused, None)
        # As lxcfs in a container does.
        self._in_the_kernel = any(at.startswith(_OF_THE_KERNEL) for at in self.foreign)
        # What our own files were read from has answered.
        for path in (__file__, sys.prefix, sys.base_prefix) if self.foreign else ():
            while mount := self.mount_of(path):
                del self.foreign[mount]
                self._folders.clear()

    def mount_of(self, path: str) -> str:
        """Return the foreign mount that a path leads to, "" for none; nothing on such a mount is called."""
        path = os.fspath(path)
        is_of_the_kernel = path.startswith(_OF_THE_KERNEL) and not self._in_the_kernel
        if is_of_the_kernel and not any(link in path for link in _LINKS_ANYWHERE):
            return ""
        if not path.startswith("/"):
            try:
                path = f"{os.getcwd()}/{path}"
            except OSError:  # it was deleted
                return ""
        folder, _, name = path.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._followed("", folder)
        at = self._followed(self._folders[folder], name)
        return at if at in self.foreign else ""

    def _followed(self, at: str, path: str) -> str:
        """Return where a path below a folder leads, "" for the root; on a foreign mount, that mount."""
        todo, links = path.split("/")[::-1], 0
        while todo and links <= _LINK_LIMIT and at not in self.foreign:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                at = at.rpartition("/")[0]
                continue
            part_path = f"{at}/{part}"
            if part_path in self.foreign:
                return part_path
            target = self._targets.get(part_path)
            if target is None:
                try:
                    target = os.readlink(part_path)
                except (OSError, ValueError):
                    target = ""
                self._targets[part_path] = target
            if not target:
                at = part_path
                continue
            links += 1
            if target[0] == "/":
                at = ""
            todo += target.split("/")[::-1]
        return at


_mounts: Mounts | None = None


def current() -> Mounts:
    """Return the mounts, read anew where a minute has gone by."""
    global _mounts  # noqa: PLW0603  replaced as a whole
    if _mounts is None or time.monotonic() - _mounts.read_at > _VALID_SECONDS:
        _mounts = Mounts()
        if _mounts.foreign:
            _spare_imports(_mounts)
    return _mounts


def _spare_imports(table: Mounts) -> None:
    """Hide from imports the folders of sys.path that do not answer, where none was imported from yet.

    Each import of what is not there would wait for them, and the standard library has such ones.
    """
    finders: dict[str, Any] = sys.path_importer_cache
    unseen = [at for at in sys.path if at and at not in finders and table.mount_of(at)]
    finders.update(dict.fromkeys(unseen))
    for folder in unseen:
        if call_or(None, os.path.exists, folder) is not None:
            del finders[folder]

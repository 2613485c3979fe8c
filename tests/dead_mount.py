"""Run a command where a FUSE file system is mounted that never answers.

    python tests/dead_mount.py FOLDER opens|silent COMMAND...

silent: it answers nothing but the kernel's greeting. opens: it also tells what its topmost folder is, and
gives no answer about what is in it. The mount is in a namespace of this process and ends with it.
Exits with 77, and says why, where such a mount cannot be had; else as the command does.
Source: include/uapi/linux/fuse.h, and fuse(4).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from pathlib import Path

NOT_HERE = 77
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_PRIVATE, _RECURSIVE = 1 << 18, 1 << 14
_GETATTR, _INIT, _ACCESS = 3, 26, 34
_FOLDER_MODE = 0o40755


def main(folder: str, how: str, *command: str) -> int:
    """Mount, run, and return the command's exit code."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments):
            why = os.strerror(ctypes.get_errno())
            print(f"no mount of FUSE can be had: {name}: {why}", file=sys.stderr)
            sys.exit(NOT_HERE)

    user, group = os.geteuid(), os.getegid()
    call("unshare", _NEW_MOUNTS | (_NEW_USER if user else 0))
    if user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {user} 1"),
            ("gid_map", f"0 {group} 1"),
        ):
            Path("/proc/self", name).write_text(text, encoding="ascii")
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        print(f"no mount of FUSE can be had: /dev/fuse: {error.strerror}", file=sys.stderr)
        return NOT_HERE
    call("mount", b"none", b"/", None, _PRIVATE | _RECURSIVE, None)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    call("mount", b"dead", os.fsencode(folder), b"fuse.dead", 0, options)
    pid = os.fork()
    if pid == 0:
        os.close(device)
        os.execvp(command[0], command)
    threading.Thread(target=serve, args=(device, how == "opens"), daemon=True).start()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def serve(device: int, opens: bool) -> None:
    """Take every request, and answer the fewest."""
    while True:
        request = os.read(device, 1 << 17)
        _, operation, unique, node = struct.unpack_from("=IIQQ", request)
        answer = None
        if operation == _INIT:
            answer = struct.pack("=IIIIHHII32x", 7, 31, 0, 0, 12, 9, 1 << 16, 1)
        elif opens and node == 1 and operation == _ACCESS:
            answer = b""
        elif opens and node == 1 and operation == _GETATTR:
            answer = struct.pack("=QIIQ40x12xIIIIII4x", 60, 0, 0, 1, _FOLDER_MODE, 2, 0, 0, 0, 4096)
        if answer is not None:
            os.write(device, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # the mount ends, and with it what waits for it

"""The `__main__` of a bundle: runs `backends` from a private temporary folder, and removes the folder.

What fits this Python is unpacked there into a virtual environment, since extension modules cannot be imported
from a zip file. It imports the standard library alone.
"""

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import venv
import zipfile
import zlib
from typing import IO, Any, NoReturn

#: The word of a command that stands for the Python that unpacks.
PYTHON = "{python}"
_SIGNALS = [getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)]
#: Removes a folder when its standard input is closed: also after SIGKILL of the writer, whose processes may
#: write to the folder for a moment more.
_REMOVER = 'trap "" HUP INT TERM; cat; for i in 1 2 3 4 5; do rm -rf "$0" && exit; sleep 1; done'
_ENDING_SECONDS = 5.0


def fits(python: str, tag: str) -> bool:
    """Return whether this is a Python, such as 3.11, on a platform, by its tag in names of wheels."""
    name = "CS_GNU_LIBC_VERSION"
    glibc = (os.confstr(name) if name in getattr(os, "confstr_names", ()) else "") or ""
    system = "macosx" if sys.platform == "darwin" else "manylinux" if glibc else "musllinux"
    if python != f"{sys.version_info[0]}.{sys.version_info[1]}" or not tag.startswith((system, "linux")):
        return False
    needed = re.match(r"manylinux_(\d+)_(\d+)_", tag)
    if needed and [*map(int, needed.groups())] > [*map(int, re.findall(r"\d+", glibc)[:2])]:
        return False
    return tag.endswith((f"_{platform.machine()}", "_universal2"))


def _private_folder() -> str:
    """Make a folder of mode 0700 where shared libraries can be loaded from. Raises OSError."""
    parents = [os.environ.get("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm", os.environ.get("XDG_RUNTIME_DIR")]  # noqa: S108
    error = OSError("no temporary folder is on a file system that allows programs")
    for parent in filter(None, parents):
        try:
            if not os.statvfs(parent).f_flag & getattr(os, "ST_NOEXEC", 0):
                return tempfile.mkdtemp(prefix="backends-bundle-", dir=parent)
        except OSError as failure:
            error = failure
    raise error


def _unpacked(archive: zipfile.ZipFile, parts: list[str], folder: str) -> str:
    """Make a virtual environment with parts of a bundle; return its interpreter."""
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = f"{folder}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    for name in archive.namelist():
        part, _, path = name.removeprefix("parts/").partition("/")
        if path and part in parts:
            target = os.path.join(packages, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "xb") as file:
                file.write(archive.read(name))
    return f"{folder}/bin/python"


def main(file: str | IO[bytes], words: list[str], node: str = "") -> int:
    """Run `backends` of a bundle with arguments; return its exit code. node: its name, for a refusal."""
    label = f"backends-push: {node}" if node else "backends"

    def stopped(number: int, _frame: Any) -> NoReturn:
        raise SystemExit(128 + number)

    with zipfile.ZipFile(file) as archive:
        targets = json.loads(archive.read("bundle.json"))["targets"]
        fit = [target["parts"] for target in targets if fits(target["python"], target["platform"])]
        if not fit:
            here = f"Python {platform.python_version()} on {platform.machine()}"
            known = ", ".join(f"{target['python']} on {target['platform']}" for target in targets)
            raise SystemExit(f"{label}: the bundle has nothing that fits {here}, only: {known}")
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        for number in _SIGNALS:
            signal.signal(number, stopped)
        try:
            folder = _private_folder()
        except OSError as error:
            raise SystemExit(f"{label}: {error}") from None
        nowhere = subprocess.DEVNULL
        remover = subprocess.Popen(
            ["sh", "-c", _REMOVER, folder], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere,
            start_new_session=True,
        )  # fmt: skip
        child = None
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            python = _unpacked(archive, fit[0], folder)
            words = [sys.executable if word == PYTHON else word for word in words]
            child = subprocess.Popen([python, "-I", "-m", "mlbackends", *words])
            code = child.wait()
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            raise SystemExit(f"{label}: {error}") from None
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            if child is not None and child.poll() is None:
                child.terminate()
                try:
                    child.wait(_ENDING_SECONDS)
                except subprocess.TimeoutExpired:
                    child.kill()
            remover.communicate()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[0], sys.argv[1:]))

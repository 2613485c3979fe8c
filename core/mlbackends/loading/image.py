"""The Python of an unpacked image, or of a process in a container or of another user, from its files alone.

Sources: CPython, Modules/getpath.py and Lib/site.py; PEP 405; Debian's and Fedora's patches of site.py.
"""

import os
import posixpath
import re
from contextlib import suppress
from typing import Any

from mlbackends.base.errors import Incomplete, NotALibrary
from mlbackends.host.host import Host
from mlbackends.host.python.packages import python_folders
from mlbackends.libraries.elf import elf_headers

#: Where an image has its Python, in the order of the usual PATH, and where virtual environments are.
_FOLDERS = ("/usr/local/bin", "/usr/bin", "/opt/conda/bin")
_ENVIRONMENTS = ("/*/pyvenv.cfg", "/*/*/pyvenv.cfg", "/*/.venv/pyvenv.cfg")
_NAMED = "name its interpreter as in a shell there: --python /opt/venv/bin/python"
_WHOLE = "give --root a whole file system; a recording cannot be followed"
_USES_SYSTEM = re.compile(r"(?mi)^include-system-site-packages\s*=\s*true")


def python_below(host: Host, executable: str = "") -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a Python that cannot be asked, with the fields of `Host.python`, and notes.

    executable: its path there; by default that of host.json, else the first one in the usual folders.
    Raises Incomplete where there is none, or it lacks its files.
    """
    known = {} if executable else host.python
    if known.get("path") or host.platform != "linux":
        if not any(host.glob(f"{folder}/*/*.py") for folder in python_folders(host)):
            raise Incomplete("this root is a recording, which does not have the files of packages", _WHOLE)
        if host.machine or host.platform != "linux":
            return known, ()
    found = [path for folder in _FOLDERS for path in _programs(host, folder)]
    found += [f"{cfg.rpartition('/')[0]}/bin/python" for name in _ENVIRONMENTS for cfg in host.glob(name)]
    path = executable and posixpath.join("/", executable)
    path = path or str(known.get("executable", "")) or next(iter(found), "")
    if not path:
        raise Incomplete(f"this root has no Python in {', '.join(_FOLDERS)}", f"{_NAMED}; {_WHOLE}")
    real = host.realpath(path)
    base = posixpath.dirname(posixpath.dirname(real))
    named = re.search(r"/python(3(?:\.\d+t?)?)?$", real)
    folders = [
        f"{base}/{at}/python{named[1] if named and '.' in named[0] else '3.*'}" for at in ("lib64", "lib")
    ]
    libraries = [posixpath.dirname(at) for folder in folders for at in host.glob(f"{folder}/os.py")]
    try:
        machine = elf_headers(host, real).machine
    except (NotALibrary, OSError) as error:
        why = getattr(error, "strerror", "") or error
        raise Incomplete(f"{path} is not a Python interpreter: {why}", _NAMED) from None
    if not named:
        raise Incomplete(f"{path} is not a Python interpreter: its name is {real}", _NAMED)
    if known.get("path"):
        return {**known, "machine": machine}, ()
    if not libraries:
        raise Incomplete(f"{path} lacks its standard library in {base}/lib", _WHOLE)
    release = libraries[0].rpartition("python")[2]
    prefix = posixpath.dirname(posixpath.dirname(path))
    settings = host.read(f"{prefix}/pyvenv.cfg", 1 << 16)
    sites = [f"{prefix}/lib/python{release}/site-packages"] if settings else []
    if not settings or _USES_SYSTEM.search(settings):
        sites.append(f"{host.env('HOME', '/root')}/.local/lib/python{release}/site-packages")
        sites += _sites(host, base, libraries[0], release)
    folders = [*host.folders("PYTHONPATH"), *libraries, f"{libraries[0]}/lib-dynload"]
    for site in filter(host.is_dir, sites):
        folders += [site, *_added(host, site)]
    described = {
        "executable": path,
        "version": release.rstrip("t"),
        "implementation": "cpython",
        "prefix": prefix if settings else base,
        "base_prefix": base,
        "path": list(filter(host.is_dir, folders)),
        "machine": machine,
    }
    notes = [f"for {path}, from its files" + ", with no environment variables set" * (not host.environment)]
    if others := [
        other for other in found if not host.is_live and posixpath.dirname(other) != posixpath.dirname(path)
    ]:
        notes.append(f"other Pythons there, which --python names: {', '.join(others)}")
    return described, tuple(notes)


def started_as(host: Host) -> str:
    """Return the path by which the inspected process started its program, as that process names it."""
    first = host.read("/proc/self/cmdline", 1 << 16).partition("\0")[0]
    first = posixpath.join(host.readlink("/proc/self/cwd"), first) if "/" in first else first
    paths = [first] if "/" in first else [f"{folder}/{first}" for folder in host.folders("PATH")]
    for path in (*paths, f"{host.env('VIRTUAL_ENV')}/bin/python"):
        with suppress(OSError, ValueError):
            if os.path.samefile(host.real(path), f"/proc/{host.pid}/exe"):
                return path
    return host.readlink("/proc/self/exe")


def _programs(host: Host, folder: str) -> list[str]:
    """Return the interpreter that a folder has under its plain name, else those with a version."""
    names = [name for name in host.listdir(folder) if re.fullmatch(r"python3(\.\d+t?)?", name)]
    return [f"{folder}/{name}" for name in (["python3"] if "python3" in names else names)]


def _sites(host: Host, base: str, library: str, release: str) -> list[str]:
    """Return the folders of packages of an interpreter outside of virtual environments."""
    if base == "/usr" and host.exists("/etc/debian_version"):
        return [f"/usr/local/lib/python{release}/dist-packages", "/usr/lib/python3/dist-packages"]
    prefixes = ("/usr/local", base) if base == "/usr" and "/lib64/" in library else (base,)
    folders = ("lib64", "lib") if "/lib64/" in library else ("lib",)
    return [f"{prefix}/{at}/python{release}/site-packages" for prefix in prefixes for at in folders]


def _added(host: Host, site: str) -> list[str]:
    """Return the folders that the .pth files of a folder of packages add to the import path."""
    texts = [host.read(f"{site}/{name}", 1 << 20) for name in host.listdir(site) if name.endswith(".pth")]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return [posixpath.join(site, line) for line in lines if line and not line.startswith(("#", "import "))]

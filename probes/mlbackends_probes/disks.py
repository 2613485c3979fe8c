"""Disks: the space left where programs, packages and models are written.

Finds:    the file systems of /, the home folder, the folder for temporary files, and the caches of Hugging
          Face, torch and pip; on Windows also every fixed drive.
Caveats:  a user's quota is not seen, nor what a container's storage driver limits. A folder that does not
          exist yet counts as its nearest parent.
Source:   statvfs(3); tempfile.gettempdir; huggingface_hub, "Environment variables"; torch.hub.get_dir;
          pip, "Caching".
"""

import posixpath
from collections.abc import Iterator

from mlbackends.base.quantities import one_line
from mlbackends.base.reasons import Reason
from mlbackends.host.host import Host
from mlbackends.host.python.frameworks import cache_folder
from mlbackends.host.system.kernel import mounted_above
from mlbackends.model.records import FactValue, Finding, Presence

GROUP = "machine"


def find(host: Host) -> Finding:
    """Measure each file system once; one that is not known or has no size is left out."""
    uses: dict[str, list[str]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for use, folder in _places(host):
        path = _mount(host, folder)
        size = sizes.get(path) or host.disk(path)
        if size and 0 <= size[1] <= size[0] and size[0]:
            sizes[path] = size
            uses.setdefault(path, []).append(use)
    file_systems: list[dict[str, FactValue]] = [
        {"path": one_line(path), "used_for": ", ".join(uses[path]), "total_bytes": total}
        for path, (total, _) in sizes.items()
    ]
    free: list[dict[str, FactValue]] = [
        {"path": one_line(path), "free_bytes": left} for path, (_, left) in sizes.items()
    ]
    if not sizes:
        reason = Reason("not-found", "no size of a file system is known")
        return Finding(presence=Presence.ABSENT, reasons=(reason,))
    return Finding(presence=Presence.FOUND, facts={"file_systems": file_systems, "free": free})


def _places(host: Host) -> Iterator[tuple[str, str]]:
    """Yield what is written where: each use with its folder."""
    if host.platform == "win32":
        yield from (("drive", drive) for drive in host.system("drives") or ())
    else:
        yield "root", "/"
    home = host.env("HOME") or host.env("USERPROFILE")
    if home:
        yield "home", home
    windows_temporary = (host.env("TEMP"), host.env("TMP")) if host.platform == "win32" else ()
    if temporary := host.env("TMPDIR") or next(filter(None, windows_temporary), "/tmp"):  # noqa: S108
        yield "temporary files", temporary
    for use, folder in (
        (
            "Hugging Face",
            host.env("HF_HUB_CACHE") or host.env("HF_HOME") or cache_folder(host, "huggingface"),
        ),
        ("torch", host.env("TORCH_HOME") or cache_folder(host, "torch")),
        ("pip", host.env("PIP_CACHE_DIR") or cache_folder(host, "pip")),
    ):
        if folder:
            yield use, folder


def _mount(host: Host, folder: str) -> str:
    """Return where the file system of a folder is mounted, its nearest existing parent if not known."""
    if host.platform == "win32":
        drive = folder.replace("\\", "/")[:3]
        return drive if drive[1:] == ":/" else folder
    path = posixpath.normpath(folder)
    while not host.exists(path) and path not in ("/", ""):
        path = posixpath.dirname(path)
    path = host.realpath(path) or path
    mount = mounted_above(host, path)
    return mount.point if mount else path

"""An environment as it would be once wheels are installed into it, as a host.

The wheels' files are at the places where pip would put them, over those of the environment. Each is a sparse
file in a temporary folder, of the right size, which is filled when it is read for the first time.
"""

import contextlib
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zipfile import ZipInfo

from mlbackends.base import mounts
from mlbackends.base.errors import NotALibrary
from mlbackends.base.writable import is_text
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import Distribution, distributions, normalised, record_bytes
from mlbackends.loading.gpu_code import GpuCode, read_all_gpu_code, read_gpu_code
from mlbackends.loading.linker import ObjectFile
from mlbackends.loading.wheels import Wheel

#: What asks about a file and does not read it.
_LOOKING: tuple[Any, ...] = (
    os.path.exists, os.path.isfile, os.path.isdir, os.path.islink, os.path.getsize, os.listdir, os.readlink
)  # fmt: skip
#: What reads the code for GPUs in a shared object.
_OF_CODE: tuple[Any, ...] = (read_gpu_code, read_all_gpu_code)
#: The most that is read of a file that is not a shared object, and of one for its code for GPUs, packed.
_TEXT_BYTES, _CODE_BYTES = 64 << 20, 64 << 20


class PlannedHost(Host):
    """A machine with wheels that are not installed.

    base: the machine as it is. folder: an empty one for the files. replaces: whether the wheels are all that
    the environment has; otherwise they replace what is installed under their names. reads_code: whether files
    with code for GPUs are read as a whole, up to a limit; otherwise that code counts as not read. assumed:
    objects by the path where they count as present. root: that of the base.
    """

    def __init__(
        self,
        base: Host,
        wheels: Sequence[Wheel],
        folder: str,
        *,
        replaces: bool,
        reads_code: bool = False,
        assumed: Mapping[str, ObjectFile] = {},
        root: str = "/",
    ) -> None:
        python = dict(base.python)
        paths = [base.realpath(path) for path in python.get("path", ())]
        sites = [path for path in paths if path.endswith(("site-packages", "dist-packages"))]
        version = ".".join(str(python.get("version", "3")).split(".")[:2])
        prefix, library = (base.realpath(str(python.get(key, "/usr"))) for key in ("prefix", "base_prefix"))
        own = [path for path in sites if path.startswith(f"{prefix}/")]
        self.site = (own or [f"{prefix}/lib/python{version}/site-packages"])[0]
        if replaces:
            paths = [path for path in paths if path not in sites and path.startswith(f"{library}/")]
        python["path"] = paths if self.site in paths else [*paths, self.site]
        self.wheels, self._folder, self._hides_all = wheels, folder, replaces
        self._most_of_code = _CODE_BYTES if reads_code else 0
        #: The wheels' files by the path where they would be, and what their folders contain.
        self._planned: dict[str, tuple[Wheel, ZipInfo] | bytes] = {}
        self._folders: dict[str, set[str]] = {}
        self._hidden: set[str] = set()
        self._empty: dict[str, tuple[Wheel, ZipInfo]] = {}
        self._shared: dict[str, tuple[Wheel, ZipInfo]] = {}
        self._damaged: dict[str, Exception] = {}
        self._clock = 0
        super().__init__(root, python=python, environment=base.environment, timeout=base.timeout)
        self.new: list[str] = []
        for wheel in wheels:
            name = normalised(wheel.info.partition("-")[0])
            self.new.append(name)
            for dist in () if replaces else distributions(base).get(name, ()):
                self._hide(base, dist)
            lines = []
            for path, info in wheel.files.items():
                at = f"{prefix}{path}" if path.startswith("/") else f"{self.site}/{path}"
                self._plan(at, (wheel, info))
                lines.append(f'"{posixpath.relpath(at, self.site)}",,{info.file_size}')
            record = "\n".join([*sorted(lines), ""]).encode()  # as pip sorts them
            self._plan(f"{self.site}/{wheel.info}/RECORD", record)
        for path in assumed:
            self._plan(path, b"")
        self._assumed = {f"{folder}{path}": file for path, file in assumed.items()}
        self._on_disk = self._on_planned_disk

    def _plan(self, path: str, entry: tuple[Wheel, ZipInfo] | bytes) -> None:
        self._planned[path] = entry
        folder, _, name = path.rpartition("/")
        while name not in self._folders.setdefault(folder, set()):
            self._folders[folder].add(name)
            folder, _, name = folder.rpartition("/")

    def _hide(self, base: Host, dist: Distribution) -> None:
        self._hidden.add(f"{base.realpath(dist.folder)}/{dist.info.rpartition('/')[2]}")
        for line in record_bytes(base, dist).decode(errors="replace").splitlines():
            path = posixpath.join(dist.folder, line.rsplit(",", 2)[0].strip('"'))
            self._hidden.add(posixpath.normpath(path))

    def _is_hidden(self, path: str) -> bool:
        if self._hides_all and path.startswith(f"{self.site}/"):
            return True
        return path in self._hidden or (".dist-info/" in path and posixpath.dirname(path) in self._hidden)

    def real(self, path: str) -> str:
        """Return the place of a path on the disk: of a wheel's file, of the copy, which is still empty."""
        path = posixpath.normpath(path)
        planned = self._planned.get(path)
        if planned is None and path not in self._folders:
            return super().real(f"/dev/null{path}" if self._is_hidden(path) else path)
        at = f"{self._folder}{path}"
        if planned is None:
            os.makedirs(at, exist_ok=True)
        elif not os.path.exists(at):
            os.makedirs(posixpath.dirname(at), exist_ok=True)
            with open(at, "wb") as file:
                if isinstance(planned, bytes):
                    file.write(planned)
                else:
                    file.truncate(planned[1].file_size)
                    self._empty[at] = planned
                    if at.endswith(".so") or ".so." in posixpath.basename(at):
                        self._shared[at] = planned
        return at

    def _on_planned_disk(self, function: Callable[..., Any], path: str, *rest: Any, **options: Any) -> Any:
        if function in _LOOKING:
            return mounts.call(function, path, *rest, **options)
        if path in self._assumed and function is ObjectFile:
            return self._assumed[path]
        if path in self._damaged:
            raise self._damaged[path]
        try:
            if function in _OF_CODE and path in self._shared:
                wheel, info = self._shared[path]
                if not wheel.fill_code(info, path, self._most_of_code):
                    return GpuCode(unread=1)
            elif path in self._empty:
                wheel, info = self._empty.pop(path)
                if path in self._shared:
                    wheel.fill(info, path)
                else:
                    with open(path, "wb") as file:
                        file.write(wheel.whole(info, _TEXT_BYTES))
            else:
                return mounts.call(function, path, *rest, **options)
        except (NotALibrary, OSError) as error:
            self._damaged[path] = error
            raise
        # Files of one tick of the clock would be one for libraries/elf.py.
        self._clock += 1
        os.utime(path, (self._clock, self._clock))
        return mounts.call(function, path, *rest, **options)

    @once_per_host
    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, those of wheels among them."""
        path = posixpath.normpath(path)
        planned = self._folders.get(path, set())
        if self._hides_all and (path == self.site or path.startswith(f"{self.site}/")):
            return sorted(planned)
        listed: list[str] = []
        with contextlib.suppress(OSError, ValueError):
            listed = mounts.call(os.listdir, super().real(path), seconds=self.timeout)
        names = (name for name in listed if is_text(name) and not self._is_hidden(f"{path}/{name}"))
        return sorted(planned.union(names))

    @once_per_host
    def realpath(self, path: str) -> str:
        """Return the path without links; the files of wheels are none."""
        normal = posixpath.normpath(path)
        return normal if normal in self._planned or normal in self._folders else super().realpath(path)

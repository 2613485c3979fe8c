"""An environment before packages are installed into it: wheels that a lock or a requirement names, as a host.

The wheels' files are at the places where pip would put them, over those of the environment. Each is a sparse
file in a temporary folder, of the right size, which is filled when it is read for the first time. Nothing is
installed, imported or built.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zipfile import ZipInfo

import msgspec

from mlbackends.base import mounts
from mlbackends.base.errors import BadInput, Incomplete, NotALibrary, counted, joined
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import distribution, distributions, normalised, record_bytes
from mlbackends.loading.assumed import PYTHON, Assumed
from mlbackends.loading.chips import ARM_CHIPS, gpus
from mlbackends.loading.gpu_code import GpuCode, read_all_gpu_code, read_gpu_code
from mlbackends.loading.imports import shared_objects
from mlbackends.loading.linker import ObjectFile, cached_paths
from mlbackends.loading.plans import if_installed, locked
from mlbackends.loading.web import RangeFile, local_path
from mlbackends.loading.wheels import Wheel
from mlbackends.model.loading import PackageLoading, TargetMachine


class Before(NamedTuple):
    """What is inspected. packages: those to answer for, None for all. lacking: those without a wheel.

    notes: returns what to know about the answer, once it is there.
    """

    host: Host
    packages: Sequence[str] | None
    lacking: Sequence[PackageLoading] = ()
    notes: Callable[[], tuple[str, ...]] = tuple


@contextmanager
def before(
    host: Host,
    subjects: Sequence[str] = (),
    wanted: Sequence[str] = (),
    index: str = "",
    lock: str = "",
    targets: Sequence[TargetMachine] = (),
    progress: Callable[[int, int, str], None] | None = None,
) -> Iterator[Before]:
    """Yield a host as it would be once packages are installed, or as it is where none are named.

    subjects: of these packages only. wanted: requirements; what they bring joins or replaces what the
    environment has. index: where it comes from, else what uv or pip are configured for. lock: a lock file,
    whose packages are then the whole environment. targets: machines to judge for. Of one of another
    architecture or C library no file is known: its system is assumed, as NVIDIA's driver is for a GPU.
    Raises BadInput and Incomplete.
    """
    if not wanted and not lock:
        yield Before(host, subjects or None)
        return
    if not host.is_live or host.pid is not None or host.platform != "linux":
        raise BadInput("wheels that are not installed can only be judged for this machine, with Linux")
    machines = {"aarch64" if target.chip in ARM_CHIPS else target.machine for target in targets} - {""}
    if len(machines) > 1:
        raise BadInput(
            f"wheels are chosen for one machine, not for {joined(sorted(machines))}", "name one --for"
        )
    machine, notes = host.machine, list[str]()
    glibc = min((target.glibc for target in targets if target.glibc), key=dotted_numbers, default="")
    assumed: dict[str, Assumed] = {}
    with TemporaryDirectory(prefix="backends-") as folder:
        if is_other := bool(glibc) or not machines <= {machine}:
            machine, glibc = next(iter(machines), machine), glibc or _NEWEST_GLIBC
            assumed = {
                f"/usr/lib64/{name}": Assumed(name, own, machine, host)
                for name, own in table("loading/assumed.toml")["system"].items()
            }
            host = _bare(host, machine, glibc, f"{folder}/root")
            assumed[_PYTHON] = Assumed(_PYTHON, PYTHON, machine)
            others = "GCC's and the other libraries that manylinux allows"
            notes.append(f"assumed to be on {machine}: glibc {glibc}, {others}")
        plan = locked(host, lock) if lock else if_installed(host, wanted, index, alone=is_other)
        if any(target.chip and target.vendor == "nvidia" for target in targets):
            drivers = table("loading/assumed.toml")["driver"]
            lacking = {
                name: own for name, own in drivers.items() if not cached_paths(host, machine).get(name)
            }
            for base in ("/usr/lib", "/usr/lib64"):
                assumed |= {f"{base}/{name}": Assumed(name, own, machine) for name, own in lacking.items()}
            notes += ["assumed to be there: NVIDIA's driver"] * bool(lacking)
        wheels = []
        for i, (name, address) in enumerate(plan.files):
            if progress:
                progress(i, len(plan.files), name)
            try:
                wheels.append(Wheel(name, RangeFile(address)))
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", "") or error
                raise Incomplete(f"{local_path(address)} cannot be read: {why}") from None
        reads_code = any(target.chip for target in targets or gpus(host))
        planned = PlannedHost(host, wheels, folder, assumed, bool(lock) or is_other, reads_code)
        names = set(map(normalised, subjects))
        answers = [answer for answer in plan.lacking if not subjects or answer.name in names]
        packages = [name for name in subjects if normalised(name) not in {one.name for one in answers}]
        if not subjects:
            dists = [distribution(planned, name) for name in planned.new]
            packages = [dist.name for dist in dists if dist and shared_objects(planned, dist)] or planned.new
        if not packages and not answers:  # it is installed already
            files = [posixpath.basename(text) for text in wanted]
            packages = [re.split("-" if name.endswith(".whl") else r"[^\w.-]", name)[0] for name in files]
        if not packages and not answers:
            raise BadInput("nothing would be installed", "leave --lock and --if-installed out")

        done = "" if wheels or answers else "nothing would be installed: the environment has it already"
        yield Before(planned, packages, answers, lambda: (*plan.notes, *notes, done or _read(wheels)))


def _read(wheels: Sequence[Wheel]) -> str:
    """Return how much of wheels has been read, in words; what is read twice is no more than the file."""
    amount = sum(min(wheel.file.amount, wheel.file.size) for wheel in wheels)
    size = sum(wheel.file.size for wheel in wheels)
    return f"read {amount / 1e6:,.1f} MB of {size / 1e6:,.1f} MB in {counted(len(wheels), 'wheel')}"


def _bare(host: Host, machine: str, glibc: str, root: str) -> Host:
    """Return a machine of another kind, with nothing on it that is known, and an interpreter as here."""
    described = {"uname": {"sysname": "Linux", "machine": machine}, "system": {"libc": f"glibc {glibc}"}}
    os.mkdir(root)
    with open(f"{root}/host.json", "wb") as file:
        file.write(msgspec.json.encode(described))
    version = str(host.python.get("version", ""))
    site = f"/venv/lib/python{'.'.join(version.split('.')[:2])}/site-packages"
    kept = {"version": version, "implementation": host.python.get("implementation", "")}
    python = {**kept, "executable": _PYTHON, "prefix": "/venv", "base_prefix": "/usr", "path": [site]}
    return Host(root, python=python, environment={})


#: A file that is not installed: of a wheel, written by us, or assumed.
_Entry = tuple[Wheel, ZipInfo] | bytes | ObjectFile


class PlannedHost(Host):
    """A machine with wheels that are not installed.

    base: the machine as it is. folder: where the files are put. replaces: whether the wheels are all that the
    environment has; otherwise they replace what is installed under their names. reads_code: whether files
    with code for GPUs are read as a whole, up to a limit; otherwise that code counts as not read. assumed:
    objects by the path where they count as present.
    """

    def __init__(
        self,
        base: Host,
        wheels: Sequence[Wheel],
        folder: str,
        assumed: Mapping[str, ObjectFile],
        replaces: bool,
        reads_code: bool,
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
        self._base, self._folder, self._hides_all = base, f"{folder}/planned", replaces
        self._most_of_code = _CODE_BYTES if reads_code else 0
        #: What is planned, by the path of its copy.
        self._planned: dict[str, _Entry] = {}
        self._hidden: set[str] = set()
        #: Files of wheels that were read: whether without their code for GPUs, or why they cannot be.
        self._read: dict[str, bool | Exception] = {}
        super().__init__(base.root or "/", python=python, environment=base.environment, timeout=base.timeout)
        self.new: list[str] = []
        for wheel in wheels:
            name = normalised(wheel.info.partition("-")[0])
            self.new.append(name)
            for dist in () if replaces else distributions(base).get(name, ()):
                self._hidden.add(f"{base.realpath(dist.folder)}/{dist.info.rpartition('/')[2]}")
                for line in record_bytes(base, dist).decode(errors="replace").splitlines():
                    path = posixpath.join(dist.folder, line.rsplit(",", 2)[0].strip('"'))
                    self._hidden.add(posixpath.normpath(path))
            lines = []
            for path, info in wheel.files.items():
                at = f"{prefix}{path}" if path.startswith("/") else f"{self.site}/{path}"
                self._plan(at, (wheel, info))
                lines.append(f'"{posixpath.relpath(at, self.site)}",,{info.file_size}')
            record = "\n".join([*sorted(lines), ""]).encode()  # as pip sorts them
            self._plan(f"{self.site}/{wheel.info}/RECORD", record)
        for path, file in assumed.items():
            self._plan(path, file)
        self._on_disk = self._on_planned_disk

    def _plan(self, path: str, entry: _Entry) -> None:
        at = f"{self._folder}{path}"
        self._planned[at] = entry
        try:
            os.makedirs(posixpath.dirname(at), exist_ok=True)
            with open(at, "wb") as file:
                file.truncate(entry[1].file_size) if isinstance(entry, tuple) else None
                file.write(entry) if isinstance(entry, bytes) else None
        except OSError as error:  # a full disk; a file below a file in a damaged wheel
            raise Incomplete(f"{path} cannot be laid out: {error.strerror}") from None

    def _is_hidden(self, path: str) -> bool:
        if self._hides_all and path.startswith(f"{self.site}/"):
            return True
        return path in self._hidden or (".dist-info/" in path and posixpath.dirname(path) in self._hidden)

    def real(self, path: str) -> str:
        """Return the place of a path on the disk: of a wheel's file, of the copy, which is still empty."""
        path = posixpath.normpath(path)
        if os.path.exists(at := f"{self._folder}{path}"):
            return at
        return super().real(f"/dev/null{path}" if self._is_hidden(path) else path)

    def _on_planned_disk(self, function: Callable[..., Any], path: str, *rest: Any, **options: Any) -> Any:
        entry = self._planned.get(path) if function not in _LOOKING else None
        if isinstance(entry, ObjectFile) and function is ObjectFile:
            return entry
        if isinstance(entry, tuple):
            if path not in self._read:
                try:
                    self._read[path] = self._fill(path, *entry)
                except (NotALibrary, OSError) as error:
                    self._read[path] = error
            if isinstance(failure := self._read[path], Exception):
                raise failure
            if self._read[path] and function in _OF_CODE:
                return GpuCode(unread=1)
        return mounts.call(function, path, *rest, **options)

    def _fill(self, path: str, wheel: Wheel, info: ZipInfo) -> bool:
        if path.endswith(".so") or ".so." in posixpath.basename(path):
            return wheel.fill(info, path, self._most_of_code)
        data = wheel.whole(info, _TEXT_BYTES)
        with open(path, "wb") as file:
            file.write(data)
        return False

    @once_per_host
    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, those of wheels among them."""
        path = posixpath.normpath(path)
        planned = set(os.listdir(at)) if os.path.isdir(at := f"{self._folder}{path}") else set()
        if self._hides_all and (path == self.site or path.startswith(f"{self.site}/")):
            return sorted(planned)
        listed = (name for name in self._base.listdir(path) if not self._is_hidden(f"{path}/{name}"))
        return sorted(planned.union(listed))

    @once_per_host
    def realpath(self, path: str) -> str:
        """Return the path without links; the files of wheels are none."""
        normal = posixpath.normpath(path)
        return normal if os.path.exists(f"{self._folder}{normal}") else super().realpath(path)


_PYTHON, _NEWEST_GLIBC = "/venv/bin/python", "2.39"
#: The most that is read of a file that is not a shared object, and of one for its code for GPUs, packed.
_TEXT_BYTES, _CODE_BYTES = 64 << 20, 64 << 20
#: What asks about a file and does not read it, and what reads the code for GPUs in a shared object.
_LOOKING: tuple[Any, ...] = (
    os.path.exists, os.path.isfile, os.path.isdir, os.path.islink, os.path.getsize, os.listdir, os.readlink
)  # fmt: skip
_OF_CODE: tuple[Any, ...] = (read_gpu_code, read_all_gpu_code)

"""The JSON files of a recorded machine, and which folder or archive is one.

It may come from anybody. A field of host.json with a wrong type is refused by name when the machine is
opened: silently ignoring a part of the description would describe another machine.
"""

import os
import posixpath
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
from msgspec import Meta, Struct

from mlbackends.base.errors import BadInput, why_not
from mlbackends.host import archive
from mlbackends.host.files import read_regular, with_slashes

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE_LIMIT = 64 << 20
#: What the top of a virtual environment and of one of conda's has.
_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")
#: A folder without any of these is not a machine's root; a part of a machine is one.
TOP_FOLDERS = ("proc", "sys", "etc", "usr", "lib", "opt", "dev", "var")

_Bytes = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Count = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
_Number = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
_Cpu = Annotated[int, Meta(ge=0, le=(1 << 20) - 1)]
_Kind = TypeVar("_Kind")


class _Python(Struct, frozen=True, omit_defaults=True):
    """The interpreter that is inspected, with the fields of `Host.python`."""

    executable: str = ""
    version: str = ""
    implementation: str = ""
    prefix: str = ""
    base_prefix: str = ""
    path: list[str] = []


class _Core(TypedDict):
    cpus: str
    efficiency_class: int


class _Node(TypedDict):
    node: int
    cpus: str


class _Group(TypedDict):
    group: int
    cpus: str


class _Cache(TypedDict):
    level: int
    type: str
    size_bytes: int
    line_bytes: int
    ways: NotRequired[int]
    cpus: str


class _PageFile(TypedDict):
    path: str
    pages: _Bytes
    used: _Bytes


class _Job(TypedDict, total=False):
    flags: int
    processes: int
    affinity: int
    process_memory: _Bytes
    job_memory: _Bytes
    cpu_flags: int
    cpu_rate: _Number
    groups: list[tuple[int, int]]


class Processors(TypedDict, total=False):
    """What `windows.processors.topology` returns."""

    cores: list[_Core]
    packages: list[str]
    dies: list[str]
    nodes: list[_Node]
    caches: list[_Cache]
    groups: list[_Group]


class _System(Struct, frozen=True):
    """What `Host.system` returns, by name, and the device nodes that the user may not open.

    `windows.calls` describes what only Windows has.
    """

    libc: str | None = None
    page_size: _Count | None = None
    clock_ticks: _Count | None = None
    clock: dict[str, bool | float] | None = None
    cpu_count: _Count | None = None
    py_cpuinfo: dict[str, Any] | None = None
    user_id: _Number | None = None
    group_ids: list[_Number] | None = None
    denied_nodes: list[str] | None = None
    cpuid: dict[str, tuple[_Number, _Number, _Number, _Number]] | None = None
    processor_features: list[_Number] | None = None
    processors: Processors | None = None
    processor_power: list[tuple[_Number, _Number, _Number]] | None = None
    memory_status: dict[str, _Bytes] | None = None
    node_memory: list[_Bytes] | None = None
    page_files: list[_PageFile] | None = None
    may_lock_memory: bool | None = None
    job: _Job | None = None
    windows_version: dict[str, _Number] | None = None
    native_machine: str | None = None
    wine_version: str | None = None
    uptime: float | None = None
    drives: list[str] | None = None
    present_devices: dict[str, dict[str, _Number]] | None = None


class Description(Struct):
    """host.json: what no file of the machine contains."""

    platform: str = "linux"
    uname: dict[str, str] = {}
    environment: dict[str, str] = {}
    affinity: tuple[_Cpu, ...] | None = None
    disks: dict[str, tuple[_Bytes, _Bytes]] = {}
    sizes: dict[str, _Bytes] = {}
    python: _Python = _Python()
    system: _System = _System()
    registry: dict[str, dict[str, str | int | list[str]]] = {}
    registry_keys: dict[str, list[str]] = {}


class Opened(NamedTuple):
    """A recorded machine: host.json, extracts.json, the folder of outputs, and the root folder.

    tree: the archive that these folders are in, or Windows' files, None if they are on the disk.
    """

    description: Description
    extracts: dict[str, dict[str, Any]]
    commands: str
    root: str
    tree: archive.Tree | None


def opened(folder: str, has_environment: bool) -> Opened:
    """Open a recorded machine. Raises BadInput with the file and the field.

    has_environment: whether the environment is given, so that it may be any folder.
    """
    tree, call = None, _directly
    if not os.path.isdir(folder):
        if not os.path.isfile(folder):
            raise BadInput(f"{folder} is not a folder", "give a folder with proc/ and sys/ in it")
        tree = archive.read(folder)
        call, folder = tree.call, tree.top
        # Most tars contain one folder with everything in it.
        names = call(os.listdir, f"{tree.top}/")
        folders = [name for name in names if call(os.path.isdir, f"{tree.top}/{name}")]
        if len(folders) == 1 and not {"host.json", "root", *TOP_FOLDERS}.intersection(names):
            folder = f"{tree.top}/{folders[0]}"
    has_description = call(os.path.isfile, posixpath.join(folder, "host.json"))
    description = _decoded(call, folder, "host.json", Description)
    if description.platform == "win32" and not tree:
        tree = archive.of_folder(folder, stays=True)
        call, folder = tree.call, tree.top
    extracts = _decoded(call, folder, "extracts.json", dict[str, dict[str, Any]])
    commands = inside(call, folder, "commands")
    inner = inside(call, folder, "root")
    is_system = call(os.path.isdir, posixpath.join(folder, "usr"))  # whose /root is a home folder
    top = inner if not is_system and call(os.path.isdir, inner) else folder
    looked_for = (*TOP_FOLDERS, *_OF_ENVIRONMENTS)
    present = {name for name in looked_for if call(os.path.lexists, posixpath.join(top, name))}
    if has_environment or has_description:
        present = {*TOP_FOLDERS}
    if present.intersection(_OF_ENVIRONMENTS) and not present & {"proc", "sys"}:
        python = "Scripts/python.exe" if os.name == "nt" else "bin/python"
        message = f"{folder} is a Python environment, not a machine description"
        raise BadInput(message, f"name its interpreter: --python {with_slashes(folder.rstrip('/'))}/{python}")
    if not present:
        try:
            call(os.listdir, folder)
        except PermissionError as error:
            raise BadInput(f"{folder} cannot be read: {error.strerror}") from None
        except OSError:  # an archive without a machine
            pass
        raise BadInput(
            f"{folder} contains neither proc/ nor sys/ nor a host.json: it is not a machine description",
            "name a folder with proc/ and sys/ in it, or the folder above a recording's root/",
        )
    return Opened(description, extracts, commands, with_slashes(os.path.realpath(top)), tree)


def _directly(function: "Callable[..., Any]", path: str, *rest: Any) -> Any:
    return function(path, *rest)


def _decoded(call: "Callable[..., Any]", folder: str, name: str, kind: type[_Kind]) -> _Kind:
    path = inside(call, folder, name)
    if not call(os.path.isfile, path):
        return kind()
    try:
        return msgspec.json.decode(call(read_regular, path, _SIZE_LIMIT), type=kind)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        why = why_not(error)
        raise BadInput(f"{path} is not a valid file of a recorded machine: {why}") from None


def inside(call: "Callable[..., Any]", folder: str, name: str) -> str:
    """Return the path of a part of a recorded machine. Raises BadInput for a link that leads out of it."""
    path = posixpath.join(folder, name)
    top, target = os.path.realpath(folder), os.path.realpath(path)
    if call(os.path.lexists, path) and os.path.commonpath((top, target)) != top:
        raise BadInput(
            f"{path} points outside the recorded machine, to {target}",
            "to inspect that machine, name its folder",
        )
    if call is not _directly and call(os.path.islink, path):
        raise BadInput(f"{path} is a link, which only the machine's own files may be")
    return path

"""A machine as files: what probes read of a host is kept, and written so that `Host` can replay it.

    recording = Recording()
    survey((), recording, Presence.FOUND)
    recording.write("/tmp/machine")          # Host("/tmp/machine") now finds the same

Nothing is kept that no probe read. Of a library, and of the loader's cache, only what was extracted is kept,
in extracts.json; of any other file what was read, whole: a probe that finds half of it would report something
else. Links are relative and do not lead out of the folder. What only the live machine can report is lost:
which group a device node belongs to, and which files may not be read.
"""

# ruff: noqa: D102 - the methods are those of Host, which has their docstrings.
from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from mlbackends.base.errors import BadInput, NotALibrary
from mlbackends.base.writable import cleaned
from mlbackends.host.archive import Tree
from mlbackends.host.files import READ_LIMIT, with_slashes
from mlbackends.host.host import Host, resolved
from mlbackends.host.recording.anonymise import Anonymiser, SecretsRemover

if TYPE_CHECKING:
    from collections.abc import Callable

    Method = TypeVar("Method", bound=Callable[..., Any])

#: The largest total size of a recording's files, in bytes.
TOTAL_LIMIT = 128 << 20
#: The most names that are kept of a listed folder.
LISTING_LIMIT = 1 << 15

_NAME_LIMIT = 255
_PROCESS_FOLDERS = ("/proc/self", "/proc/thread-self")


def _noting(method: Method) -> Method:
    """Return a method that notes the path and calls the source's method of that name."""

    def noting(self: Recording, path: str) -> Any:
        self._paths[path] = None
        return getattr(self._source, method.__name__)(path)

    return cast("Method", noting)


class Recording(Host):
    """A host that returns what another one does, and keeps it.

    source: the host that is recorded; the live machine by default.
    """

    is_kept = True

    def __init__(self, source: Host | None = None) -> None:
        self._source = source = source or Host()
        self.cache = {}
        self.denied = source.denied
        self.silent = source.silent
        self.timeout = source.timeout
        self.pid = source.pid
        self.root = source.root
        self.is_live = source.is_live
        self.total_limit, self.listing_limit = TOTAL_LIMIT, LISTING_LIMIT
        self._variables = _RecordedVariables(source.environment)
        self.environment = self._variables
        self._paths: dict[str, None] = {}
        self._contents: dict[str, bytes] = {}
        self._extracts: dict[str, dict[str, Any]] = {}
        self._listings: dict[str, list[str]] = {}
        self._disks: dict[str, tuple[int, int]] = {}
        self._sizes: dict[str, int] = {}
        self._system: dict[str, Any] = {}
        self._registry: dict[str, dict[str, Any]] = {}
        self._registry_keys: dict[str, list[str]] = {}
        self._outputs: dict[str, str] = {}
        #: Files that were too large to be written, and folders whose listing was too long.
        self.cut: dict[str, None] = {}

    # ---- the methods of Host -------------------------------------------------------------------

    def real(self, path: str) -> str:
        return self._source.real(path)

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> bytes:
        data = self._source.read_bytes(path, limit)
        if len(data) >= len(self._contents.get(path, b"")):
            self._contents[path] = data
        return data

    def extracted(self, path: str, read: Callable[[str], Any], kind: Any, name: str = "") -> Any:
        self._paths[path] = None
        name = name or read.__name__
        try:
            result = self._source.extracted(path, read, kind, name)
        except NotALibrary as error:
            self._extracts.setdefault(self._source.realpath(path), {})[name] = str(error)
            raise
        extract = self._extracts.setdefault(self._source.realpath(path), {})
        if isinstance(result, dict) and isinstance(before := extract.get(name), dict):
            extract[name] = {**before, **result}  # of some symbols, and then of others
        else:
            extract[name] = result
        return result

    exists = _noting(Host.exists)
    is_file = _noting(Host.is_file)
    is_dir = _noting(Host.is_dir)
    is_link = _noting(Host.is_link)
    readlink = _noting(Host.readlink)
    realpath = _noting(Host.realpath)

    def can_open(self, path: str) -> bool:
        self._paths[path] = None
        is_open = self._source.can_open(path)
        if not is_open and path not in self._system.setdefault("denied_nodes", []):
            self._system["denied_nodes"].append(path)
        return is_open

    def size(self, path: str) -> int:
        self._paths[path] = None
        size = self._source.size(path)
        if size:
            self._sizes[path] = size
        return size

    def listdir(self, path: str) -> list[str]:
        names = self._source.listdir(path)
        self._listings[path] = names[: self.listing_limit]
        if len(names) > self.listing_limit:
            self.cut[path] = None
        return names

    def glob(self, pattern: str) -> list[str]:
        paths = self._source.glob(pattern)
        self._paths.update(dict.fromkeys(paths))
        return paths

    @property
    def platform(self) -> str:
        return self._source.platform

    def uname(self) -> dict[str, str]:
        return self._source.uname()

    def affinity(self) -> tuple[int, ...] | None:
        return self._source.affinity()

    def disk(self, path: str) -> tuple[int, int] | None:
        sizes = self._source.disk(path)
        if sizes is not None:
            self._disks[path] = sizes
        return sizes

    def system(self, name: str) -> Any:
        self._system[name] = self._source.system(name)
        return self._system[name]

    def registry(self, key: str, *names: str) -> dict[str, Any]:
        values = self._source.registry(key, *names)
        if values:
            self._registry.setdefault(key, {}).update(values)
        return values

    def registry_keys(self, key: str) -> list[str]:
        names = self._source.registry_keys(key)
        if names:
            self._registry_keys[key] = names[: self.listing_limit]
        return names

    @property
    def python(self) -> dict[str, Any]:
        return self._source.python

    def run(self, *command: str, timeout: float = 5.0) -> str:
        output = self._source.run(*command, timeout=timeout)
        if output:
            self._outputs[" ".join(command)] = output[:READ_LIMIT]
        return output

    # ---- writing -------------------------------------------------------------------------------

    def write(self, folder: str, anonymiser: Anonymiser | None = None) -> None:
        """Write the recorded machine as `files`. Raises BadInput where the folder holds something already."""
        if os.path.isdir(folder) and os.listdir(folder):
            raise BadInput(f"{folder} is not empty", "name a folder that does not exist yet")
        self.files(anonymiser or SecretsRemover()).unpack(folder)

    def files(self, anonymiser: Anonymiser) -> Tree:
        """Return the recorded machine. anonymiser: replaces what names it or its user."""
        tree = Tree()
        tree.put("root", set())
        # What was no library, such as a linker's script, is kept as it was read.
        extracted = {
            path
            for path, extract in self._extracts.items()
            if not all(isinstance(item, str) for item in extract.values())
        }
        contents = {
            path: anonymiser.file(path, data)
            for path, data in self._contents.items()
            if self._source.realpath(path) not in extracted
        }
        left = self.total_limit
        for path in sorted(contents, key=lambda item: len(contents[item])):
            left -= len(contents[path])
            if left < 0:
                self.cut[path] = None
                contents[path] = b""
        _Writer(self._source, tree, anonymiser).write(self._paths, contents, self._listings)
        description: dict[str, Any] = {
            "platform": self._source.platform,
            "uname": self._source.uname(),
            "environment": self.variables(),
            "affinity": self._source.affinity(),
            "disks": self._disks,
            "sizes": self._sizes or None,
            "python": self._source.python,
            "system": self._system,
            "registry": self._registry or None,
            "registry_keys": self._registry_keys or None,
        }
        description = {name: item for name, item in description.items() if item is not None}
        tree.put("host.json", _json(anonymiser.description(description)))
        if self._extracts:
            extracts = anonymiser.value(cleaned(msgspec.to_builtins(self._extracts)))
            tree.put("extracts.json", _json(extracts))
        for command, output in self._outputs.items():
            name = command.replace("/", "_")
            if len(name.encode()) <= _NAME_LIMIT:
                tree.put(f"commands/{name}", anonymiser.output(command, output).encode())
        return tree

    def variables(self) -> dict[str, str]:
        """Return the variables that were read by name and are set."""
        source = self._source.environment
        return {name: source[name] for name in sorted(self._variables.names) if name in source}

    def commands(self) -> tuple[str, ...]:
        """Return the commands that printed something."""
        return tuple(self._outputs)


class _RecordedVariables(dict[str, str]):
    """The environment; `names` are the variables that were read one by one."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


class _Writer:
    """Puts files, folders and links below a tree's root, each where the source really has it."""

    def __init__(self, source: Host, tree: Tree, anonymiser: Anonymiser) -> None:
        self.source = source
        self.tree = tree
        self.anonymiser = anonymiser

    def write(
        self, paths: dict[str, None], contents: dict[str, bytes], listings: dict[str, list[str]]
    ) -> None:
        for path, data in contents.items():
            spot = self._resolve(path)
            if spot and self.source.is_file(spot):
                self._write_file(spot, data)
        listed = (f"{at}/{name}" for at in listings for name in listings[at])
        for path in (*paths, *listed, *listings):
            spot = self._resolve(path)
            if spot and self.source.is_dir(spot):
                self.tree.put(self._target(spot), set())
            elif spot and self.source.exists(spot) and self._target(spot) not in self.tree.entries:
                self._write_file(spot, b"")

    def _target(self, spot: str) -> str:
        """Return where what the source has there is written."""
        return self.tree.spelled(f"root/{self.anonymiser.text(spot).lstrip('/')}".rstrip("/"))

    def _resolve(self, path: str) -> str:
        """Return a path without links, making those on its way; "" if they lead nowhere."""

        def target_of(at: str) -> str:
            if at in _PROCESS_FOLDERS or not self.source.is_link(at):
                return ""
            target = self.source.readlink(at)
            self._link(at, target)
            return target

        return resolved(with_slashes(path), target_of)

    def _write_file(self, spot: str, data: bytes) -> None:
        at = self._target(spot)
        entry = self.tree.entries.get(at)
        if not isinstance(entry, bytes):
            self.tree.put(at, data)
        elif len(entry) <= len(data):
            self.tree.entries[at] = data

    def _link(self, at: str, target: str) -> None:
        """Write a link, anonymised, which does not leave the folder."""
        path = self._target(at)
        if path in self.tree.entries or not target:
            return
        # The folder of the link has no links in it, so that ".." leads up in it.
        joined = posixpath.join(posixpath.dirname(at), target)
        whole = posixpath.normpath(joined)
        # Part of a path alone may not show that it names somebody.
        name = self.anonymiser.text(whole)
        climbs = posixpath.normpath(joined.lstrip("/")).startswith("..")
        is_renamed = name != whole or path != f"root{at}"
        # Others stay as they are: a probe takes the last part, ".." may follow a link.
        if target.startswith("/") or climbs or is_renamed:
            target = posixpath.relpath(f"/root{name}", f"/{posixpath.dirname(path)}")
        self.tree.put(path, target)


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"

"""A machine as a folder: what probes read of a host is kept, and written so that `Host` can replay it.

    recording = Recording()
    survey((), recording, Presence.FOUND)
    recording.write("/tmp/machine")          # Host("/tmp/machine") now finds the same

Nothing is kept that no probe asked for. Of the environment those variables are written that were
asked for by name. What names the machine or its user gets a stand-in where a `Disguise` is given. Of a
library there is a sketch (`elf_sketch`) that says of itself what the library does; of any other file
what was read, whole: a probe that finds half of it would answer otherwise. Only where all of that is
more than TOTAL_LIMIT are the largest files left out, and `Recording.cut` names them. Links are
relative and lead nowhere out of the folder. What only the living can tell is lost: which group a
device node belongs to, and which files may not be read.
"""

# ruff: noqa: D102 - the methods are those of Host, and their docstrings stand there.
from __future__ import annotations

import os
from typing import Any

from mlbackends.host.host import READ_LIMIT, Host
from mlbackends.host.recording.anonymise import Disguise, NoDisguise
from mlbackends.host.recording.elf_sketch import Sketch, sketched
from mlbackends.libraries import elf
from mlbackends.model.errors import BadInput

TOTAL_LIMIT = 128 << 20
"""The contents of a recording's files are no larger than this together, in bytes."""
LISTING_LIMIT = 1 << 15
"""Of a folder that was listed no more names than this are kept."""

_HEAD = 4096
_LINKS_LIMIT = 40
_NAME_LIMIT = 255
_KEPT = ".keep"
_OF_EACH_PROCESS = ("/proc/self", "/proc/thread-self")


class Recording(Host):
    """A host that answers as another one does, and keeps what it answered.

    source: the host that is asked; the live machine by default.
    """

    def __init__(self, source: Host | None = None) -> None:
        self._source = source = source or Host()
        self.denied = source.denied
        self.pid = source.pid
        self.root = source.root
        self.is_live = source.is_live
        self._asked = _Asked(source.environment)
        self.environment = self._asked
        self._met: dict[str, None] = {}
        self._contents: dict[str, bytes] = {}
        self._listings: dict[str, list[str]] = {}
        self._opened: set[str] = set()
        self._disks: dict[str, tuple[int, int]] = {}
        self._sizes: dict[str, int] = {}
        self._system: dict[str, Any] = {}
        self._outputs: dict[str, str] = {}
        self.cut: dict[str, None] = {}
        """What is not in what was written, or in part: files that were too large, folders too long."""
        if elf.wanted_symbols is None:
            elf.wanted_symbols = {}

    # ---- answering, and keeping the answer -----------------------------------------------------

    def real(self, path: str) -> str:
        """Return where a path lies on the disk; whoever asks will read it as a library."""
        self._opened.add(path)
        return self._source.real(path)

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> bytes:
        data = self._source.read_bytes(path, limit)
        if len(data) >= len(self._contents.get(path, b"")):
            self._contents[path] = data
        return data

    def exists(self, path: str) -> bool:
        self._met[path] = None
        return self._source.exists(path)

    def is_file(self, path: str) -> bool:
        self._met[path] = None
        return self._source.is_file(path)

    def is_dir(self, path: str) -> bool:
        self._met[path] = None
        return self._source.is_dir(path)

    def is_link(self, path: str) -> bool:
        self._met[path] = None
        return self._source.is_link(path)

    def can_open(self, path: str) -> bool:
        self._met[path] = None
        is_open = self._source.can_open(path)
        if not is_open and path not in self._system.setdefault("denied_nodes", []):
            self._system["denied_nodes"].append(path)
        return is_open

    def size(self, path: str) -> int:
        self._met[path] = None
        size = self._source.size(path)
        if size:
            self._sizes[path] = size
        return size

    def readlink(self, path: str) -> str:
        self._met[path] = None
        return self._source.readlink(path)

    def realpath(self, path: str) -> str:
        self._met[path] = None
        return self._source.realpath(path)

    def listdir(self, path: str) -> list[str]:
        names = self._source.listdir(path)
        self._listings[path] = names[:LISTING_LIMIT]
        if len(names) > LISTING_LIMIT:
            self.cut[path] = None
        return names

    def glob(self, pattern: str) -> list[str]:
        paths = self._source.glob(pattern)
        self._met.update(dict.fromkeys(paths))
        return paths

    @property
    def platform(self) -> str:
        return self._source.platform

    def uname(self) -> dict[str, str]:
        return self._source.uname()

    def affinity(self) -> tuple[int, ...] | None:
        return self._source.affinity()

    def disk(self, path: str) -> tuple[int, int] | None:
        told = self._source.disk(path)
        if told is not None:
            self._disks[path] = told
        return told

    def system(self, name: str) -> Any:
        self._system[name] = self._source.system(name)
        return self._system[name]

    @property
    def python(self) -> dict[str, Any]:
        return self._source.python

    def run(self, *command: str, timeout: float = 5.0) -> str:
        output = self._source.run(*command, timeout=timeout)
        if output:
            self._outputs[" ".join(command)] = output[:READ_LIMIT]
        return output

    # ---- writing -------------------------------------------------------------------------------

    def write(self, folder: str, disguise: Disguise | None = None) -> None:
        """Write the recorded machine. Raises BadInput where the folder holds something already.

        disguise: what gives stand-ins to what names the machine or its user; nothing, by default.
        """
        import msgspec

        disguise = disguise or NoDisguise()

        if os.path.isdir(folder) and os.listdir(folder):
            raise BadInput(f"{folder} is not empty", "name a folder that is not there yet")
        root = os.path.join(folder, "root")
        os.makedirs(root, exist_ok=True)
        _Writer(self._source, root, frozenset(self._listings), disguise).write(
            self._met, self._affordable(disguise), self._opened, self._listings
        )
        told: dict[str, Any] = {
            "platform": self._source.platform,
            "uname": self._source.uname(),
            "environment": self.variables(),
            "affinity": self._source.affinity(),
            "disks": self._disks,
            "sizes": self._sizes or None,
            "python": self._source.python,
            "system": self._system,
        }
        told = disguise.description({name: each for name, each in told.items() if each is not None})
        data = msgspec.json.format(msgspec.json.encode(told), indent=1)
        _put(os.path.join(folder, "host.json"), data + b"\n")
        for command, output in self._outputs.items():
            name = command.replace("/", "_")
            if len(name.encode()) <= _NAME_LIMIT:
                os.makedirs(os.path.join(folder, "commands"), exist_ok=True)
                _put(
                    os.path.join(folder, "commands", name),
                    disguise.output(command, output).encode(),
                )

    def _affordable(self, disguise: Disguise) -> dict[str, bytes]:
        """Return what is kept of each file that was read, without the largest ones if it is too much."""
        kept = {path: disguise.file(path, data) for path, data in self._contents.items()}
        left = TOTAL_LIMIT
        for path in sorted(kept, key=lambda each: len(kept[each])):
            left -= len(kept[path])
            if left < 0:
                self.cut[path] = None
                kept[path] = b""
        return kept

    def variables(self) -> dict[str, str]:
        """Return the variables that were asked for by name and are set."""
        source = self._source.environment
        return {name: source[name] for name in sorted(self._asked.names) if name in source}

    def commands(self) -> tuple[str, ...]:
        """Return the commands that have said something."""
        return tuple(self._outputs)


class _Asked(dict[str, str]):
    """The environment; `names` are the variables that were asked for one by one."""

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
    """Puts files, folders and links below a root, each where the source really has it.

    listed: the folders whose names were asked for; a name of ours must not appear among them.
    """

    def __init__(self, source: Host, root: str, listed: frozenset[str], disguise: Disguise) -> None:
        self.source = source
        self.root = root
        self.disguise = disguise
        self.listed = frozenset(source.realpath(path) for path in listed)

    def write(
        self,
        met: dict[str, None],
        contents: dict[str, bytes],
        libraries: set[str],
        listings: dict[str, list[str]],
    ) -> None:
        sketches = set()
        for path in sorted(libraries):
            spot = self._spot(path)
            if spot and self.source.is_file(spot):
                sketch = self._library(path)
                if sketch:
                    sketches.add(spot)
                self._file(spot, sketch or self.disguise.data(self.source.read_bytes(path, _HEAD)))
        for path, data in contents.items():
            spot = self._spot(path)
            if spot and spot not in sketches and self.source.is_file(spot):
                self._file(spot, data)
        for path in (*met, *(f"{at}/{name}" for at in listings for name in listings[at])):
            if spot := self._spot(path):
                self._place(spot)
        for path in listings:
            if (spot := self._spot(path)) and self.source.is_dir(spot):
                os.makedirs(self._at(spot), exist_ok=True)

    def _at(self, spot: str) -> str:
        """Return where the file that the source has there is written."""
        return self.root + self.disguise.text(spot)

    def _spot(self, path: str) -> str:
        """Return where a path leads, making the links on its way; "" where they lead nowhere."""
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
            at = "/" + "/".join([*done, part])
            if at in _OF_EACH_PROCESS or not self.source.is_link(at):
                done.append(part)
                continue
            links += 1
            target = self.source.readlink(at)
            self._link(at, target)
            if links > _LINKS_LIMIT:
                return ""
            if target.startswith("/"):
                done = []
            todo.extend(piece for piece in target.split("/")[::-1] if piece)
        return "/" + "/".join(done)

    def _place(self, spot: str) -> None:
        """Put a folder or an empty file there, unless something is there already."""
        at = self._at(spot)
        if self.source.is_dir(spot):
            os.makedirs(at, exist_ok=True)
            # git keeps no empty folder.
            if spot not in self.listed and not os.listdir(at):
                _put(f"{at}/{_KEPT}", b"")
        elif self.source.exists(spot) and not os.path.lexists(at):
            self._file(spot, b"")

    def _file(self, spot: str, data: bytes) -> None:
        at = self._at(spot)
        os.makedirs(os.path.dirname(at), exist_ok=True)
        if not os.path.isfile(at) or os.path.getsize(at) <= len(data):
            _put(at, data)

    def _link(self, at: str, target: str) -> None:
        at, target = self._renamed(at, target)
        path = self.root + at
        if os.path.lexists(path) or not target:
            return
        folder = os.path.dirname(at)
        # Absolute links, and those that climb above "/", would leave the folder.
        depth = 0
        for part in target.split("/"):
            depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
            if target.startswith("/") or depth < -folder.count("/") + (folder == "/"):
                target = os.path.relpath(os.path.normpath(os.path.join(folder, target)), folder)
                break
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)

    def _renamed(self, at: str, target: str) -> tuple[str, str]:
        """Return a link and its target with stand-ins; a part of a path alone may not be told as such."""
        renamed = self.disguise.text(at)
        if target.startswith("/") or not target:
            return renamed, self.disguise.text(target)
        # The folder of the link has no links in it, so that ".." leads up in it.
        whole = os.path.normpath(f"{os.path.dirname(at)}/{target}")
        if self.disguise.text(whole) == whole and renamed == at:
            return at, target
        return renamed, os.path.relpath(self.disguise.text(whole), os.path.dirname(renamed))

    def _library(self, path: str) -> bytes:
        """Return the sketch of a library; b"" for what is none."""
        at = self.source.real(path)
        names = (elf.wanted_symbols or {}).get(at, set())
        try:
            told = elf.read_elf(at)
            sketch = Sketch(
                machine=told.machine,
                # Here, since in the file a text of another length would shift what follows.
                soname=self.disguise.text(told.soname),
                needed=self.disguise.value(told.needed),
                rpath=self.disguise.value(told.rpath),
                runpath=self.disguise.value(told.runpath),
                symbols=sorted(elf.defined_symbols(at, names)),
                versions=elf.version_definitions(at),
                needs=list(elf.version_needs(at).items()),
                build_id=told.build_id,
            )
        except (elf.NotElf, OSError):
            return b""
        return sketched(sketch)


def _put(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)

r"""A folder as one file: a recorded machine as text that a person can review, or as a tar.

    backends.machine/1
    file root/proc/version
    →Linux version 6.1.0
    escaped root/proc/device-tree/model
    →Raspberry Pi 5\x00
    link root/sys/class/drm/card0 -> ../../devices/pci0000:00/drm/card0
    folder root/sys/class/net
    end

→ is a tab. Each line of a file ends with a newline; the lines of an escaped file are joined without newlines
and contain Python's string escapes. A name that could be misread is a JSON string. Equal folders give equal
text.
"""

import errno
import gzip
import io
import json
import os
import posixpath
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar, cast

from mlbackends.base import mounts
from mlbackends.base.errors import BadInput
from mlbackends.host.files import READ_LIMIT, read_regular, with_slashes

ENDING = ".machine"
HINT = "name a folder with proc/ and sys/ in it, or an archive of one made by `backends snapshot` or tar"
#: The largest archive that is read, in bytes after unpacking.
SIZE_LIMIT = 256 << 20
ENTRY_LIMIT = 1 << 18
_NAME_LIMIT = 1024

_FORMAT, _END = b"backends.machine/1\n", b"end\n"
_GZIP = b"\x1f\x8b"
_DRIVE = re.compile(r"^(root/[A-Za-z]):(?=/|$)")
#: Folders on Windows cannot have a colon; a drive's has none on any system, so that it can be moved.
_DRIVE_ON_DISK = re.compile(r"^(root/[A-Za-z])(?=/|$)")
_LAST_LINE_OF_ENTRY = re.compile(rb"\n(?!\t)")
_ESCAPES = re.compile(rb"\t(?:[ -\[\]-~]|\\(?:x[0-9a-f]{2}|[\\nrt]))*+\n")
#: Finds what no path of Windows can have: signs, ends and names of parts.
NOT_IN_WINDOWS = re.compile(
    r'(?i)[\\:*?"<>|\x00-\x1f]|[. ](?:/|$)|(?:^|/)(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:[./]|$)'
)

#: A file's content, a link's target, or the names in a folder.
Entry: TypeAlias = bytes | str | set[str]
Result = TypeVar("Result")
_Kind = TypeVar("_Kind", bytes, str, set[str])


class OnDisk(bytes):
    """A file of a tree that stays on the disk. path: where it is."""

    path = ""


class Tree:
    """The files of a folder, in memory.

    top: the path of the folder in calls. entries: by path below it; "" is the folder itself.
    On the drives of Windows, root/C: and so on, case is ignored: the first spelling of a path stays.
    """

    def __init__(self, top: str = "") -> None:
        self.top = top
        self.entries: dict[str, Entry] = {"": set()}
        self._spellings: dict[str, str] = {}

    def spelled(self, path: str) -> str:
        """Return a path as it is spelled in the tree."""
        return self._spellings.get(path.casefold(), path) if self._spellings else path

    def put(self, path: str, entry: Entry) -> None:
        """Add a file, a link or an empty folder, and the folders above it.

        Raises ValueError if the name is taken, unless both are folders.
        """
        path = self.spelled(path)
        stored = self.entries.get(path)
        if isinstance(entry, set) and isinstance(stored, set):
            return
        if stored is not None:
            raise ValueError(f"{path!r} appears twice in it")
        if len(path) > _NAME_LIMIT:
            raise ValueError(f"{path[:80]!r}... is too long for a name")
        folder, slash, name = path.rpartition("/")
        self.put(folder, set())
        folder = self.spelled(folder)
        cast("set[str]", self.entries[folder]).add(name)
        path = f"{folder}{slash}{name}"
        self.entries[path] = entry
        if _DRIVE.match(path):
            self._spellings[path.casefold()] = path
        if len(self.entries) > ENTRY_LIMIT:
            raise ValueError(f"it contains more than {ENTRY_LIMIT} files")

    def call(self, function: Callable[..., Result], path: str, *rest: Any, seconds: float = 5.0) -> Result:
        """Return what a function of the system, such as os.listdir, returns for a path without links.

        A function that is not in _CALLS gets a copy of the file; a path outside of the tree is left as it is.
        Raises OSError, and what the function raises.
        """
        inner = with_slashes(path).removeprefix(f"{self.top}/")
        if inner == path:
            return mounts.call(function, path, *rest, seconds=seconds)
        entry = self.entries.get(self.spelled(inner.strip("/")))
        if isinstance(entry, OnDisk):
            return mounts.call(function, entry.path, *rest, seconds=seconds)
        if answer := _CALLS.get(function):
            return cast("Result", answer(entry, *rest))
        with tempfile.TemporaryDirectory(prefix="backends-") as folder:
            copy = os.path.join(folder, "file")
            with open(copy, "wb") as file:
                file.write(_of_kind(bytes, entry))
            return function(copy, *rest)

    def text(self) -> bytes:
        """Return the tree in our text format. Raises ValueError if it is too large."""
        text = [_FORMAT]
        for path in sorted(self.entries, key=lambda path: path.split("/")):
            entry, name = self.entries[path], _quoted(path)
            if isinstance(entry, str):
                text.append(b"link %b -> %b\n" % (name, _quoted(entry)))
            elif isinstance(entry, bytes):
                shown = entry.decode(errors="surrogateescape")
                is_text = shown.replace("\n", "").replace("\t", "").isprintable()
                if is_text and shown[-1:] in ("\n", ""):
                    lines = entry[:-1].replace(b"\n", b"\n\t")
                    text.append(b"file %b\n" % name + (b"\t%b\n" % lines if entry else b""))
                    continue
                escaped = entry.decode("latin-1").encode("unicode_escape")
                lines = escaped.replace(rb"\n", b"\\n\n\t").removesuffix(b"\n\t")
                text.append(b"escaped %b\n\t%b\n" % (name, lines))
            elif path and not entry:
                text.append(b"folder %b\n" % name)
        return _within_limit(b"".join([*text, _END]))

    def unpack(self, folder: str) -> None:
        """Write the tree into an empty folder. Raises OSError, and ValueError for a name it cannot have."""
        for path, entry in self.entries.items():
            name = _DRIVE.sub(r"\1", path)
            if os.name == "nt" and NOT_IN_WINDOWS.search(name):
                raise ValueError(f"Windows can have no file {path!r}; name an archive, NAME{ENDING}")
            at = os.path.join(folder, name)
            # A name that exists already differs in case only, and is another entry.
            if isinstance(entry, set):
                os.makedirs(at, exist_ok=not path)
            elif isinstance(entry, str):
                os.symlink(entry, at)
            else:
                with open(at, "xb") as file:
                    file.write(entry)


def is_archive(path: str) -> bool:
    """Return whether a file begins as an archive does."""
    try:
        head = read_regular(path, 512)
    except OSError:
        return False
    return head.startswith((_FORMAT[:-2], _GZIP)) or head[257:262] == b"ustar"


def read(path: str) -> Tree:
    """Return the files in an archive: our text format or a tar, either of them also compressed by gzip.

    Raises BadInput with the problem.
    """
    tree = Tree(with_slashes(os.path.realpath(path)))
    try:
        data = read_regular(path, SIZE_LIMIT + 1)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    try:
        data = _within_limit(data)
        if data.startswith(_GZIP):
            with gzip.open(io.BytesIO(data)) as file:
                data = _within_limit(file.read(SIZE_LIMIT + 1))
        for name, entry in (_in_text if data.startswith(_FORMAT[:-2]) else _in_tar)(data):
            tree.put(_inside(name, name), entry)
            if isinstance(entry, str):
                _inside(posixpath.join(posixpath.dirname(name), entry), f"{name} -> {entry}")
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path} is not an archive of a machine: {error}", HINT) from None
    return tree


def of_folder(folder: str, *, stays: bool = False) -> Tree:
    """Return the files in a folder. Raises BadInput if there are too many, and OSError.

    stays: whether their content stays on the disk, where the DLLs of a framework have gigabytes.
    """
    tree = Tree(with_slashes(os.path.realpath(folder)))
    for base, folders, files in os.walk(folder):
        for path in (os.path.join(base, name) for name in (*folders, *files)):
            inner = with_slashes(os.path.relpath(path, folder))
            entry: Entry = set()
            if os.path.islink(path):
                entry = os.readlink(path)
            elif not os.path.isdir(path):
                entry = OnDisk() if stays else read_regular(path, SIZE_LIMIT)
                if isinstance(entry, OnDisk):
                    entry.path = path
            try:
                tree.put(_DRIVE_ON_DISK.sub(r"\1:", inner), entry)
            except ValueError as error:
                raise BadInput(f"{folder} is not a recorded machine: {error}", HINT) from None
    return tree


def _within_limit(data: bytes) -> bytes:
    if len(data) > SIZE_LIMIT:
        raise ValueError(f"it is larger than {SIZE_LIMIT >> 20} MiB")
    return data


def _inside(path: str, shown: str) -> str:
    """Return a path in an archive without "." and "..". Raises ValueError if it leads out of it."""
    inner = posixpath.normpath(path)
    if inner.startswith("/") or inner.split("/")[0] == "..":
        raise ValueError(f"{shown!r} points outside of it")
    return "" if inner == "." else inner


def _in_text(data: bytes) -> Iterator[tuple[str, Entry]]:
    """Yield the paths and entries in an archive of our format; raises ValueError."""
    if not data.startswith(_FORMAT):
        raise ValueError(f"it begins with {data[:20]!r}; this version reads {_FORMAT!r}")
    at = len(_FORMAT)
    while match := _LAST_LINE_OF_ENTRY.search(data, at):
        head, _, content = data[at : match.end()].partition(b"\n")
        kind, _, name = head.partition(b" ")
        entry: Entry = set()
        if kind == b"file":
            entry = content[1:].replace(b"\n\t", b"\n")
        elif kind == b"escaped" and _ESCAPES.fullmatch(content := content.replace(b"\n\t", b"")):
            entry = content[1:-1].decode("unicode_escape").encode("latin-1")
        elif kind == b"link" and not content:
            name, _, target = name.partition(b" -> ")
            entry = _unquoted(target)
        elif kind != b"folder" or content:
            break
        yield _unquoted(name), entry
        at = match.end()
    if data[at:] != _END:
        line = data.count(b"\n", 0, at) + 1
        raise ValueError(f"line {line} is not a known entry, or the end is missing")


def _in_tar(data: bytes) -> Iterator[tuple[str, Entry]]:
    """Yield the paths and entries in a tar; raises ValueError."""
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                if member.issym():
                    yield member.name, member.linkname
                elif member.isdir():
                    yield member.name, set()
                elif member.isreg() and not member.issparse():
                    file = archive.extractfile(member)
                    yield member.name, file.read() if file else b""
                else:
                    raise ValueError(f"{member.name!r} is neither a file, a folder nor a link")
            # tarfile accepts half a header as the end.
            if data[archive.offset :][:512] != bytes(512):
                raise ValueError("it is truncated")
    except (tarfile.TarError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _quoted(name: str) -> bytes:
    if name.isprintable() and name == name.strip() and name[:1] != '"' and " -> " not in name:
        return name.encode()
    return json.dumps(name).replace(">", "\\u003e").encode()


def _unquoted(name: bytes) -> str:
    return str(json.loads(name)) if name[:1] == b'"' else name.decode()


def _of_kind(kind: type[_Kind], entry: Entry | None) -> _Kind:
    if not isinstance(entry, kind):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return entry


_CALLS: dict[Any, Callable[..., object]] = {
    os.path.exists: lambda entry: entry is not None,
    os.path.lexists: lambda entry: entry is not None,
    os.path.isfile: lambda entry: isinstance(entry, bytes),
    os.path.isdir: lambda entry: isinstance(entry, set),
    os.path.islink: lambda entry: isinstance(entry, str),
    os.path.getsize: lambda entry: len(_of_kind(bytes, entry)),
    os.listdir: lambda entry: list(_of_kind(set, entry)),
    os.readlink: lambda entry: _of_kind(str, entry),
    read_regular: lambda entry, limit=READ_LIMIT: _of_kind(bytes, entry)[:limit],
}

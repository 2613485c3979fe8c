"""The sources of reports: standard input, files, folders of files, kept runs, and recorded machines."""

import codecs
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from mlbackends.audit.reports import recognised, report_of
from mlbackends.base import mounts
from mlbackends.base.errors import BadInput, why_not
from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.reader import Head, Reader, lines_of
from mlbackends.host.files import as_utf8, open_named, read_regular
from mlbackends.model.fleet import SCHEMA, Envelope, Fleet, Status
from mlbackends.model.history import FILE

if TYPE_CHECKING:
    from mlbackends.fleet.store import Folder

STANDARD_INPUT = "-"
#: Files in a folder that are not a node's, unless they begin with a report.
_NOT_OF_NODES = pattern(r"\.(?:bak|cfg|conf|csv|err|html|ini|md|pdf|png|py|sh|svg|tmp|toml|xml|ya?ml)$")
_RUN = pattern(r"(.+)@(\d{4}-\d\d-\d\d|\d{1,18})")
_OF_A_FILE = pattern(r"(\.(?:frames?|jsonl?|log|out|txt|machine|tar|tgz|gz))+$")
_FLEET = bytes_pattern(rb'\s*\{\s*"schema"\s*:\s*"backends\.fleet/')
_REPORT = bytes_pattern(rb'BK1 |\s*\{\s*"schema"\s*:\s*"backends\.')
_LONGEST_LINE = 160
#: The most bytes of a file with a fleet; most of it is the names of the nodes.
FLEET_LIMIT = 512 << 20


class Source(Struct, frozen=True):
    """A file, a recorded machine, or "-", standard input.

    is_of_node: it holds one node's report. is_listed: it is in a folder that was named.
    """

    path: str
    is_of_node: bool = False
    is_listed: bool = False

    @property
    def node(self) -> str:
        """The name of the file without its endings: the node's name where nothing else states one."""
        return _OF_A_FILE.sub("", os.path.basename(self.path.rstrip("/")))


def sources_of(paths: Sequence[str]) -> Iterator[Source]:
    """Yield files, "-", recorded machines, kept runs, and the report files of folders. Raises BadInput."""
    for path in paths:
        if path != STANDARD_INPUT and mounts.call(is_kept, path):
            yield Source(path)
            continue
        if path == STANDARD_INPUT or not mounts.call(os.path.isdir, path) or _is_machine(path):
            yield Source(path, is_of_node=len(paths) > 1 and path != STANDARD_INPUT)
            continue
        try:
            names = sorted(mounts.call(os.listdir, path))
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from None
        for name in names:
            inner = os.path.join(path, name)
            if not name.startswith(".") and mounts.call_or(True, _is_source, inner):
                yield Source(inner, is_of_node=True, is_listed=True)


def split(path: str) -> tuple[str, str]:
    """Return a path as the folder and the run that it names, such as DIR@7 or DIR@2026-11-03; "" for none."""
    match = None if os.path.exists(path) else _RUN.fullmatch(path)
    return (match[1], match[2]) if match else (path, "")


def is_kept(path: str) -> bool:
    """Return whether a path is a folder of kept reports, or one run of it."""
    return os.path.lexists(os.path.join(split(path)[0], FILE))


def opened_kept(path: str, **how: bool) -> "AbstractContextManager[Folder]":
    """Return `store.opened(path, **how)`. Raises BadInput."""
    try:
        from mlbackends.fleet.store import opened  # some builds of Python have no SQLite
    except ImportError as error:
        raise BadInput(f"kept reports need Python's sqlite3, which cannot be imported: {error}") from None
    return opened(path, **how)


def _is_source(path: str) -> bool:
    """Return whether an entry of a folder is a report, by its ending or its first bytes, or a machine."""
    if _is_machine(path):
        return True
    if not _NOT_OF_NODES.search(path):
        return not os.path.isdir(path)
    try:
        return os.path.isfile(path) and _REPORT.match(read_regular(path, 200)) is not None
    except OSError:
        return False


def _is_machine(path: str) -> bool:
    """Return whether a path is a recorded machine: a folder with its answers, or an archive."""
    if os.path.isdir(path):
        return os.path.isfile(os.path.join(path, "host.json"))
    from mlbackends.host.archive import is_archive

    return os.path.isfile(path) and is_archive(path)


def taken(
    sources: Iterable[Source],
    collection: Collection,
    visit: Callable[[str, Envelope], None] | None = None,
) -> Iterator[str]:
    """Add the reports of sources to the collection, and yield the name of each node.

    visit: called with the name of a node and its envelope, for each report that the collection has accepted.
    A file written by `backends fleet summarize --format json` is merged into the collection. What was lost
    and belongs to no known node is counted in it. Raises BadInput.
    """
    reader = Reader()
    for source in sources:
        for envelope in _envelopes(source, reader, collection):
            before = len(collection.nodes)
            name = collection.add(envelope)
            if visit is not None and len(collection.nodes) > before:
                visit(name, envelope)
            yield name
    collection.garbled.update(reader.garbled)
    collection.unchecked += reader.unchecked


def _envelopes(source: Source, reader: Reader, collection: Collection) -> Iterator[Envelope]:
    """Yield the envelopes of a source; one with the error for a node's file that holds none."""
    path, name, head = source.path, source.node, b""
    is_stdin = path == STANDARD_INPUT
    if is_stdin:
        if sys.stdin is None:
            return
        path, name = "standard input", ""
    has_any = False
    try:
        if not is_stdin and mounts.call(_is_machine, path):
            yield Envelope(node=name, report=Raw(msgspec.json.encode(report_of(path))))
            return
        if not is_stdin and mounts.call(is_kept, path):
            place, which = split(path)
            with opened_kept(place) as folder:
                run = folder.run(which)
                collection.expect(run.expected)
                yield from folder.envelopes(run.number)
            return
        # What was not named, such as a FIFO in a folder, may never end.
        if source.is_listed and mounts.call(os.path.exists, path) and not os.path.isfile(path):
            raise ValueError("it is not a regular file")  # noqa: TRY301
        with _standard_input() if is_stdin else open_named(path) as opened:
            file = opened
            if file.peek(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell's `>`
                file = io.BufferedReader(io.BytesIO(b"".join(as_utf8([file.read(FLEET_LIMIT)]))))
            if _FLEET.match(file.peek(200)):
                collection.merge(fleet_in(file.read(FLEET_LIMIT + 1), path))
                has_any = True
            else:
                head = file.peek(_LONGEST_LINE)
                what = recognised(head)  # of which each line before a colon is no node
                envelopes = reader.read(
                    lines_of(file), name or "stdin" * bool(what), is_of_node=source.is_of_node or bool(what)
                )
                if source.is_of_node:
                    envelopes = _of_file(envelopes, reader, name)
                for envelope in envelopes:
                    has_any = True
                    yield envelope
                if what and not (has_any or source.is_of_node):
                    raise BadInput(f"{path} is {what}, not a report of backends")  # noqa: TRY301
    except (OSError, ValueError, msgspec.DecodeError, RecursionError, BadInput) as error:
        failure: Exception = error
        if not isinstance(error, BadInput):
            why = error.strerror if isinstance(error, OSError) else str(error)
            failure = BadInput(f"{path} cannot be read: {why}")
        if not source.is_listed:
            raise failure from None
        has_any = True
        yield Envelope(node=name, status=Status.ERROR, error=str(failure))
    if source.is_of_node and not has_any:
        text = head.lstrip()[:_LONGEST_LINE].split(b"\n")[0].decode(errors="replace").strip()
        what = recognised(head) or text
        why = "there is no report in its file" + (f", but: {what}" if what else "")
        yield Envelope(node=name, status=Status.ERROR, error=why)


@contextmanager
def _standard_input() -> Iterator[io.BufferedReader]:
    file: io.BufferedReader = io.BufferedReader(cast("io.RawIOBase", sys.stdin.buffer))
    try:
        yield file
    finally:
        file.detach()  # else it would be closed


def _of_file(envelopes: Iterator[Envelope], reader: Reader, name: str) -> Iterator[Envelope]:
    """Yield the envelopes of a file in a folder; what precedes a colon does not name a single one."""
    for first in envelopes:
        is_by_label = reader.is_by_label
        second = next(envelopes, None)
        yield replace(first, node=name) if is_by_label and second is None else first
        if second is not None:
            yield second
            yield from envelopes


def fleet_in(data: bytes, path: str) -> Fleet:
    """Return the fleet in a file. Raises BadInput."""
    if len(data) > FLEET_LIMIT:
        raise BadInput(f"{path} is larger than {FLEET_LIMIT >> 20} MiB: that is not a fleet")
    try:
        schema = msgspec.json.decode(data, type=Head).schema
        if schema == SCHEMA:
            return msgspec.json.decode(data, type=Fleet)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not a fleet: {why_not(error)}") from None
    message = f"{path} has the schema {schema[:80]!r}; this version reads {SCHEMA!r}"
    raise BadInput(message, "use the version of backends that wrote it")

"""Where reports come from: standard input, files, folders of files, and recorded machines."""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedReader

import msgspec
from msgspec import Raw, Struct

from mlbackends.audit.reports import report_of
from mlbackends.base import mounts
from mlbackends.base.errors import BadInput
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.reader import Head, Reader, lines_of
from mlbackends.host.files import READ_FLAGS, read_regular
from mlbackends.model.fleet import SCHEMA, Envelope, Fleet, Status

STANDARD_INPUT = "-"
#: What the file of a node in a folder ends with; of others only those that begin as a report does.
_ENDINGS = ("", ".frame", ".frames", ".json", ".jsonl", ".log", ".out", ".txt")
_OF_A_FILE = re.compile(r"(\.(?:frames?|jsonl?|log|out|txt|machine|tar|tgz|gz))+$")
_REPORT = re.compile(rb'BK1 |\s*\{\s*"schema"\s*:\s*"backends\.')
#: Bytes of a file with a fleet; its longest part is the names of the nodes.
FLEET_LIMIT = 512 << 20


class Source(Struct, frozen=True):
    """A file, a recorded machine, or "-", standard input.

    is_of_node: it is there for one node's report. is_listed: nobody named it, it is in a folder.
    """

    path: str
    is_of_node: bool = False
    is_listed: bool = False


def sources_of(paths: Sequence[str]) -> Iterator[Source]:
    """Yield what paths name: files, "-", recorded machines, and what is in folders. Raises BadInput."""
    for path in paths:
        if path != STANDARD_INPUT and mounts.call(os.path.isdir, path) and not _is_machine(path):
            yield from (Source(inner, is_of_node=True, is_listed=True) for inner in _files(path))
        else:
            yield Source(path, is_of_node=len(paths) > 1 and path != STANDARD_INPUT)


def read(sources: Iterable[Source], collection: Collection) -> Iterator[Envelope]:
    """Yield an envelope for each report in the sources, and for each that did not come whole.

    The name of a file without its endings is that of the node where nothing else says one. A file that
    `backends fleet summarize --format json` wrote is put to the collection, and so is what no node can be
    named for. Raises BadInput.
    """
    reader = Reader()
    for source in sources:
        if source.path != STANDARD_INPUT:
            envelopes = _of_file(source, reader, collection)
            if source.is_listed:
                envelopes = _of_listed(envelopes, source.path)
            yield from _with_failures(envelopes, source.path) if source.is_of_node else envelopes
        elif sys.stdin is not None:
            yield from reader.read(lines_of(sys.stdin.buffer))
    collection.garbled.update(reader.garbled)
    collection.unchecked += reader.unchecked


def taken(
    sources: Iterable[Source],
    collection: Collection,
    visit: Callable[[str, Envelope], None] | None = None,
) -> Iterator[str]:
    """Add what sources hold to the collection, and yield the name of each node as it comes.

    visit: called with the name of a node and its envelope, for each report that was taken.
    """
    for envelope in read(sources, collection):
        name = collection.add(envelope)
        if visit is not None and name in collection.nodes:
            visit(name, envelope)
        yield name


def _files(folder: str) -> Iterator[str]:
    try:
        names = sorted(mounts.call(os.listdir, folder))
    except OSError as error:
        raise BadInput(f"{folder} cannot be read: {error.strerror}") from None
    for name in names:
        path = os.path.join(folder, name)
        is_folder = os.path.isdir(path)
        is_file = os.path.splitext(name)[1] in _ENDINGS and not is_folder
        if not name.startswith(".") and (is_file or _is_machine(path) or _begins_as_report(path)):
            yield path


def _begins_as_report(path: str) -> bool:
    """Tell whether a file without an ending begins as one: node1.example.org has none."""
    try:
        return os.path.isfile(path) and _REPORT.match(read_regular(path, 200)) is not None
    except OSError:
        return False


def _of_listed(envelopes: Iterator[Envelope], path: str) -> Iterator[Envelope]:
    """Yield the envelopes of a file in a folder; where it cannot be read, that is its node's error."""
    try:
        yield from envelopes
    except BadInput as error:
        yield Envelope(node=_node_of(path), status=Status.ERROR, error=str(error))


def _with_failures(envelopes: Iterator[Envelope], path: str) -> Iterator[Envelope]:
    """Yield the envelopes of a node's file; one that says so where there are none."""
    has_any = False
    for envelope in envelopes:
        has_any = True
        yield envelope
    if not has_any and os.path.splitext(path)[1] != ".json":  # which may be a fleet, or anything
        error = "there is no report in its file"
        yield Envelope(node=_node_of(path), status=Status.ERROR, error=error)


def _node_of(path: str) -> str:
    return _OF_A_FILE.sub("", os.path.basename(path.rstrip("/")))


def _is_machine(path: str) -> bool:
    """Tell whether a path is a recorded machine: a folder with its answers, or an archive."""
    if os.path.isdir(path):
        return os.path.isfile(os.path.join(path, "host.json"))
    from mlbackends.host.archive import is_archive

    return os.path.isfile(path) and is_archive(path)


def _of_file(source: Source, reader: Reader, collection: Collection) -> Iterator[Envelope]:
    path, name = source.path, _node_of(source.path)
    if mounts.call(_is_machine, path):
        yield Envelope(node=name, report=Raw(msgspec.json.encode(report_of(path))))
        return
    try:
        mounts.check(path)
        # As with cat, a FIFO that was named is waited for; one that is in a folder may have no writer.
        is_listed = source.is_listed
        with os.fdopen(os.open(path, READ_FLAGS), "rb") if is_listed else open(path, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                os.set_blocking(file.fileno(), True)
            if _is_fleet(file):
                collection.merge(fleet_in(file.read(FLEET_LIMIT + 1), path))
            else:
                yield from reader.read(lines_of(file), name, is_of_node=source.is_of_node)
    except (OSError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"{path} cannot be read: {why}") from None


def _is_fleet(file: BufferedReader) -> bool:
    return re.match(rb'\s*\{\s*"schema"\s*:\s*"backends\.fleet/', file.peek(200)) is not None


def fleet_in(data: bytes, path: str) -> Fleet:
    """Return the fleet that a file holds. Raises BadInput."""
    if len(data) > FLEET_LIMIT:
        raise BadInput(f"{path} is larger than {FLEET_LIMIT >> 20} MiB: that is no fleet")
    try:
        schema = msgspec.json.decode(data, type=Head).schema
        if schema == SCHEMA:
            return msgspec.json.decode(data, type=Fleet)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no fleet: {error}") from None
    message = f"{path} has the schema {schema[:80]!r}; this version reads {SCHEMA!r}"
    raise BadInput(message, "use the version of backends that wrote it")

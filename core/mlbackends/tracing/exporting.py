"""Writing a trace for other programs: the formats are the files of exports/.

export(records, "trace.csv")                 the format by the name's end; .gz behind it is packed
export(records, "trace.json.gz")
export(records, "-", "jsonl")                standard output
"""

import gzip
import os
from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from mlbackends.host.files import standard_output, whole_file
from mlbackends.model import registry
from mlbackends.model.errors import BadInput
from mlbackends.model.trace import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

REGISTRY = "mlbackends.tracing.exports"


def formats() -> tuple[str, ...]:
    """Return the names of all formats."""
    return registry.names(REGISTRY)


def format_of(path: str) -> str:
    """Return the format that a file's name ends with; raises BadInput, with those there are."""
    name = os.path.basename(path).lower().removesuffix(".gz")
    for each in formats():
        if name.endswith(registry.load(REGISTRY, each).ENDINGS):
            return each
    endings = [end for each in formats() for end in registry.load(REGISTRY, each).ENDINGS]
    raise BadInput(f"{path!r} does not tell a format", f"it may end with {', '.join(endings)}")


def export(records: Iterable[Record], path: str, format_name: str = "") -> int:
    """Write records to a file, or to standard output where the path is "-"; return how many went in.

    The file comes to be when all is written; what was there before stays until then. A device or a FIFO
    is written to as the records come. Raises UnknownName for a format that is none, BadInput where the
    file cannot be written or the format lacks what it needs, BrokenPipeError where its reader has gone.
    """
    leaf = registry.load(REGISTRY, format_name or format_of(path))
    try:
        with _opened(path) as file:
            return int(leaf.write(records, file))
    except BrokenPipeError:  # its reader has seen enough
        raise
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def _opened(path: str) -> "Iterator[BinaryIO]":
    if path == "-":
        with standard_output() as file:
            yield file
        return
    with whole_file(path) as whole, _packed(path, whole) as file:
        yield file


@contextmanager
def _packed(path: str, file: BinaryIO) -> "Iterator[BinaryIO]":
    if not path.lower().endswith(".gz"):
        yield file
        return
    # Without a name and a time in it, equal traces make equal files.
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed:
        yield cast("BinaryIO", packed)

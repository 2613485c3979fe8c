"""A fleet that is too large for one reader: read in parts by the workers of a cluster, and put together.

The parts come to the same as one reader's summary; a report whose frames stand in two files is garbled.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from mlbackends.base.errors import BadInput
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.groups import fleet_of
from mlbackends.fleet.judging import Finder
from mlbackends.fleet.records import united
from mlbackends.fleet.sources import STANDARD_INPUT, Source, fleet_in, sources_of, taken

#: About two seconds of work. A larger file is a part alone.
PART_BYTES = 64 << 20
PART_FILES = 2000
_FILES = "name files that they have too"

#: What engines define as `each`.
Each = Callable[[str, Callable[[Any], Any], Sequence[Any]], Iterator[tuple[int, Any]]]


def parts_of(paths: Sequence[str]) -> list[tuple[Source, ...]]:
    """Return what paths name in parts of at most PART_BYTES and PART_FILES. Raises BadInput."""
    parts: list[list[Source]] = []
    room = 0
    for source in sources_of(paths):
        if source.path == STANDARD_INPUT:
            raise BadInput("workers cannot read standard input", _FILES)
        try:
            status = os.stat(source.path)
            size, is_pipe = status.st_size, stat.S_ISFIFO(status.st_mode)
        except (OSError, ValueError) as error:
            if not source.is_listed:  # else an error of its node, which the worker finds
                why = error.strerror if isinstance(error, OSError) else str(error)
                raise BadInput(f"{source.path} cannot be read: {why}") from None
            size, is_pipe = 0, False
        if is_pipe and not source.is_listed:
            raise BadInput(f"workers cannot read a pipe: {source.path}", _FILES)
        if not parts or size > room or len(parts[-1]) >= PART_FILES:
            parts.append([])
            room = PART_BYTES
        parts[-1].append(replace(source, path=os.path.abspath(source.path)))
        room -= size
    return [tuple(part) for part in parts]


def part_of(sources: Iterable[Source], *, looks: bool) -> bytes:
    """Return what sources hold as a fleet in JSON: the work of one worker. looks: for hazards."""
    collection, finder = Collection(), Finder(looks=looks)
    for _ in taken(sources, collection, finder.visit):
        pass
    hazards = united((*collection.hazards, *finder.hazards))
    return msgspec.json.encode(replace(fleet_of(collection), hazards=hazards))


def read_on(
    each: Each, where: str, paths: Sequence[str], collection: Collection, *, looks: bool
) -> Iterator[tuple[int, int]]:
    """Put what paths hold to the collection, read by an engine's workers.

    Yields how many parts are done, and how many there are. The parts are put together in their own order,
    whichever ends first. Raises BadInput, and MlBackendsError where a worker fails.
    """
    parts = parts_of(paths)
    found: dict[int, bytes] = {}
    done = 0
    for place, data in each(where, partial(part_of, looks=looks), parts):
        found[place] = data
        while done in found:
            collection.merge(fleet_in(found.pop(done), "what a worker found"))
            done += 1
        yield done, len(parts)

"""A fleet that is too large for one reader: the workers of a cluster read it in parts, which are merged.

The result is the same as one reader's summary, but a report whose frames are in two files is garbled.
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
from mlbackends.fleet.sources import STANDARD_INPUT, Source, fleet_in, sources_of, split, taken

#: About two seconds of work. A larger file is a part of its own.
PART_BYTES = 64 << 20
PART_FILES = 2000
_FILES = "name files that the workers can read too"

#: What engines define as `each`.
Each = Callable[[str, Callable[[Any], Any], Sequence[Any]], Iterator[tuple[int, Any]]]


def parts_of(
    paths: Sequence[str], part_bytes: int = PART_BYTES, part_files: int = PART_FILES
) -> list[tuple[Source, ...]]:
    """Return the sources that paths name, in parts of at most so many bytes and files. Raises BadInput."""
    parts: list[list[Source]] = []
    left = 0
    for source in sources_of(paths):
        if source.path == STANDARD_INPUT:
            raise BadInput("workers cannot read standard input", _FILES)
        try:
            status = os.stat(split(source.path)[0])
            size, is_pipe = status.st_size, stat.S_ISFIFO(status.st_mode)
        except (OSError, ValueError) as error:
            if not source.is_listed:  # else an error of its node, which the worker finds
                why = error.strerror if isinstance(error, OSError) else str(error)
                raise BadInput(f"{source.path} cannot be read: {why}") from None
            size, is_pipe = 0, False
        if is_pipe and not source.is_listed:
            raise BadInput(f"workers cannot read a pipe: {source.path}", _FILES)
        if not parts or size > left or len(parts[-1]) >= part_files:
            parts.append([])
            left = part_bytes
        parts[-1].append(replace(source, path=os.path.abspath(source.path)))
        left -= size
    return [tuple(part) for part in parts]


def part_of(sources: Iterable[Source], *, looks: bool) -> bytes:
    """Return the fleet in sources as JSON: the work of one worker. looks: whether to look for hazards."""
    collection, finder = Collection(), Finder(looks=looks)
    for _ in taken(sources, collection, finder.visit):
        pass
    hazards = united((*collection.hazards, *finder.hazards))
    return msgspec.json.encode(replace(fleet_of(collection), hazards=hazards))


def read_on(
    each: Each,
    where: str,
    parts: Sequence[tuple[Source, ...]],
    collection: Collection,
    *,
    looks: bool,
) -> Iterator[tuple[int, int]]:
    """Add parts, read by an engine's workers, to the collection.

    Yields the number of finished parts and of all parts. They are merged in their own order, whichever ends
    first. Raises BadInput, and MlBackendsError where a worker fails.
    """
    results: dict[int, bytes] = {}
    done = 0
    for place, data in each(where, partial(part_of, looks=looks), parts):
        results[place] = data
        while done in results:
            collection.merge(fleet_in(results.pop(done), "the result of a worker"))
            done += 1
        yield done, len(parts)

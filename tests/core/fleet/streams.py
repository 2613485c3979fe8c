"""Small reports, and lines cut as the manuals and sources of transports describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mlbackends.fleet.collection import Collection
from mlbackends.fleet.reader import Reader
from mlbackends.model.fleet import Envelope
from mlbackends.model.records import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Bytes of a message from a task, in Slurm's SLURM_IO_MAX_MSG_LEN.
SRUN = 1024
#: Bytes that Open MPI forwards at once.
MPIRUN = 4096
#: Bytes of a line in the log of a container, by the container runtime interface.
CONTAINER = 16384


def report_of(text: str = "", **facts: Any) -> bytes:
    """Return a report as JSON on one line. text: makes it as long as one likes."""
    cpu = {"model_name": "Xeon", "text": text} | facts
    document = {
        "schema": SCHEMA,
        "tool": "backends 0",
        "depth": "found",
        "root": "/",
        "created": "",
        "duration_seconds": 0.5,
        "redacted": True,
        "probes": {"cpu": {"presence": "found", "facts": cpu, "duration_seconds": 0.1}},
    }
    return msgspec.json.encode(document)


def envelope_of(node: str, text: str = "", **facts: Any) -> Envelope:
    return Envelope(node=node, report=msgspec.Raw(report_of(text, **facts)))


def cut(text: bytes, size: int, label: bytes = b"") -> list[bytes]:
    """Return a node's output as a transport that cuts it hands it on: each piece a line with its label."""
    pieces = []
    for line in text.split(b"\n"):
        pieces += [label + line[at : at + size] for at in range(0, max(1, len(line)), size)]
    return pieces


def collected(lines: Iterable[bytes]) -> Collection:
    """Return the collection of the reports in the lines."""
    reader, collection = Reader(), Collection()
    for envelope in reader.read(lines):
        collection.add(envelope)
    collection.garbled.update(reader.garbled)
    collection.unchecked += reader.unchecked
    return collection

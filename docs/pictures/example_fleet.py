"""A fleet to show: 64 nodes as a recorded HGX H100, some with faults put in, as frames.

python docs/pictures/example_fleet.py > fleet.frames
backends fleet summarize fleet.frames --expect 'node[001-064]' --hazards
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from mlbackends.audit.reports import report_of
from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE = Path(__file__).resolve().parents[2] / "tests" / "hosts" / "hgx-h100-eight-gpus.machine"
OLD_DRIVER, NO_FABRIC, NO_ROOM = {7, 23}, {5, 18, 52}, {12}
SEVEN_GPUS, LATE, CUT, SILENT = 41, 30, 31, 64


def lines() -> Iterator[str]:
    """Yield what 64 nodes print."""
    data = msgspec.json.encode(report_of(str(MACHINE)))
    for number in range(1, 65):
        node = f"node{number:03}"
        envelope = Envelope(node=node, report=Raw(msgspec.json.encode(_machine(number, data))))
        if number == LATE:
            envelope = Envelope(node=node, status=Status.TIMEOUT, error="no report within 60 s")
        found = [*frames(envelope)]
        if number != SILENT:
            yield from found[:-1] if number == CUT else found


def _machine(number: int, data: bytes) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(data)
    probes = document["probes"]
    nvidia, memory = probes["nvidia"], probes["memory"]["facts"]
    memory["total_bytes"] += number * 131_072  # the kernel leaves a little more or less
    nvidia["facts"]["fabric_manager"] = number not in NO_FABRIC
    if number in OLD_DRIVER:
        text = msgspec.json.encode(document).replace(b"560.35.03", b"550.54.15")
        return msgspec.json.decode(text)  # type: ignore[no-any-return]
    if number in NO_ROOM:
        probes["host"]["facts"]["shared_memory_bytes"] = 67_108_864
    if number == SEVEN_GPUS:
        nvidia["devices"] = nvidia["devices"][:7]
    return document


if __name__ == "__main__":
    print(*lines(), sep="\n")

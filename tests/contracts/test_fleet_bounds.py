"""A small input does not take much memory: each is a file of frames of at most some MiB."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Raw

from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope
from mlbackends.model.records import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODES = 30
LIMIT_MIB = 1000
PROGRAM = """
import resource, sys
from mlbackends_cli.main import guarded_main
code = guarded_main(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def report(probes: dict[str, Any]) -> bytes:
    return json.dumps({"schema": SCHEMA, "probes": probes}, separators=(",", ":")).encode()


def probe(**fields: Any) -> dict[str, Any]:
    return {"name": "x", "presence": "found", **fields}


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "lists": lambda node: report({"cpu": probe(facts={"a": [[node]] * 1_000_000})}),
    "fewer lists": lambda node: report({"cpu": probe(facts={"a": [[node, at] for at in range(60_000)]})}),
    "values": lambda node: report({"cpu": probe(facts={f"n{at}": [node] for at in range(90_000)})}),
    "probes": lambda node: report({f"p{node}-{at}": probe(facts={"a": "x" * 15_000}) for at in range(500)}),
    "copies": lambda node: report({
        "cpu": probe(libraries=[
            {"path": "/l.so", "presence": "found", "facts": {f"n{at}": node}} for at in range(20_000)
        ])
    }),
    "records": lambda node: json.dumps({
        "schema": "backends.sdpa-bench/1",
        "rows": [{"backend": f"{node}-{at}", "seconds": at} for at in range(9_000)],
    }).encode(),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("kind", HOSTILE)
def test_memory_is_bounded(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "frames"
    with path.open("w") as file:
        for node in range(NODES):
            envelope = Envelope(node=f"n{node}", report=Raw(HOSTILE[kind](node)))
            file.writelines(f"{line.rstrip()}\n" for line in frames(envelope))

    done = subprocess.run(
        [
            sys.executable, "-c", PROGRAM,
            "fleet", "summarize", "--hazards", str(path), "--format", "json", "--output", "/dev/null",
        ],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-2000:]
    code, mebibytes = map(int, done.stdout.split())
    print(kind, path.stat().st_size >> 10, "KiB", code, mebibytes, "MiB")
    assert code in (0, 1, 3)
    assert mebibytes < LIMIT_MIB

"""How much processor time and memory a summary of many nodes takes.

    python tests/benchmarks/fleet.py [COUNT] [--form json|frame|label] [--kib 17]

A generator makes reports of a recorded HGX H100, cut to a size by leaving out probes, each with volatile
values of its own and a few with faults, and pipes them into `backends fleet summarize`, whose time and memory
are printed.
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mlbackends.audit.reports import report_of
from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE = Path(__file__).resolve().parents[1] / "hosts" / "hgx-h100-eight-gpus.machine"


def machine(kib: float) -> dict[str, Any]:
    """Return a report of about so many KiB: the probes of the machine, and of the others what has room."""
    document: dict[str, Any] = msgspec.to_builtins(report_of(str(MACHINE)))
    probes = document["probes"]
    first = ("cpu", "host", "memory", "limits", "nvidia", "python", "packages")
    document["probes"] = {name: probes[name] for name in first}
    for name in sorted(probes, key=lambda each: len(msgspec.json.encode(probes[each]))):
        if len(msgspec.json.encode(document)) < 1024 * kib:
            document["probes"].setdefault(name, probes[name])
    return document


def template(kib: float, **nvidia: Any) -> list[bytes]:
    """Return a report as JSON, cut where a number stands that each node has otherwise."""
    document = machine(kib)
    probes: dict[str, Any] = document["probes"]
    for probe in probes.values():
        probe["duration_seconds"] = "@"
    probes["host"]["facts"]["uptime_seconds"] = "@"
    for name in ("total_bytes", "free_bytes", "available_bytes"):
        probes["memory"]["facts"][name] = "@"
    probes["limits"]["facts"]["effective_memory_bytes"] = "@"
    probes["nvidia"]["devices"] = probes["nvidia"]["devices"][: nvidia.pop("gpus", 8)]
    probes["nvidia"]["facts"].update(nvidia)
    return msgspec.json.encode(document).split(b'"@"')


def reports(count: int, kib: float) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the report of each node."""
    rng = random.Random(7)
    sound = template(kib)
    faults = {
        97: template(kib, driver_release="550.54.15"),
        500: template(kib, gpus=7),
        700: template(kib, fabric_manager=False),
    }
    for at in range(count):
        pieces = next((found for each, found in faults.items() if at % each == 3), sound)
        # Within a hundredth of each other, as what the kernel leaves of the same memory.
        numbers = (b"%d" % (2_160_000_000_000 + rng.randrange(10**9)) for _ in pieces[1:])
        yield (
            f"node{at:06}",
            b"".join(each for pair in zip(pieces, (*numbers, b""), strict=True) for each in pair),
        )


def lines(count: int, kib: float, form: str) -> Iterator[bytes]:
    """Yield the output of all nodes."""
    for node, data in reports(count, kib):
        envelope = Envelope(node=node, report=msgspec.Raw(data))
        if form == "json":
            yield msgspec.json.encode(envelope)
        elif form == "label":
            yield f"{node}: ".encode() + data
        else:
            yield from (line.encode() for line in frames(envelope))


def main() -> None:
    """Make the reports, pipe them in, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--form", choices=["json", "frame", "label"], default="json")
    parser.add_argument("--kib", type=float, default=17)
    parser.add_argument("--hazards", action="store_true")
    given = parser.parse_args()
    command = [sys.executable, "-m", "mlbackends", "fleet", "summarize"]
    size = 0
    start = time.perf_counter()
    process = subprocess.Popen(
        command + (["--hazards"] if given.hazards else []),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    for line in lines(given.count, given.kib, given.form):
        size += len(line) + 1
        process.stdin.write(line + b"\n")
    process.stdin.close()
    head = process.stdout.readline().decode().strip()
    process.stdout.read()
    process.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    print(head)
    print(
        f"{size / 1e6:.0f} MB as {given.form}: {cpu:.1f} s of CPU, {peak:.0f} MiB at most,", end=" "
    )
    print(
        f"{1e6 * cpu / given.count:.0f} us a report; {time.perf_counter() - start:.0f} s with the generator"
    )


if __name__ == "__main__":
    main()

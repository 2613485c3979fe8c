"""How much processor time and memory a summary of many nodes takes.

    python tests/benchmarks/fleet.py [COUNT] [--form json|frame|label] [--kib 17] [--by-group 'node(....)']
    python tests/benchmarks/fleet.py [COUNT] --engine dask|ray [--workers 2]
    python tests/benchmarks/fleet.py [COUNT] --parts [--by-group 'p(....)']
    python tests/benchmarks/fleet.py [COUNT] --keep RUNS

A generator makes reports of a recorded HGX H100, cut to a size by leaving out probes, each with volatile
values of its own and a few with faults, and pipes them into `backends fleet summarize`, whose time and memory
are printed; or writes them to files, which one reader and the workers of a cluster read in turn; or reads
one part as a worker does, and merges its result as often as there would be parts; or keeps them, as so many
runs, and reads the newest and the history.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mlbackends.audit.reports import report_of
from mlbackends.fleet.frames import frames
from mlbackends.model.fleet import Envelope

if TYPE_CHECKING:
    from collections.abc import Iterator

SUMMARIZE = [sys.executable, "-m", "mlbackends", "fleet", "summarize"]
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
        pieces = next((parts for period, parts in faults.items() if at % period == 3), sound)
        # Within a hundredth of each other, as what the kernel leaves of the same memory.
        numbers = (b"%d" % (2_160_000_000_000 + rng.randrange(10**9)) for _ in pieces[1:])
        yield (
            f"node{at:06}",
            b"".join(piece for pair in zip(pieces, (*numbers, b""), strict=True) for piece in pair),
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


def piped(count: int, kib: float, form: str, *options: str) -> None:
    """Pipe the reports into one reader with these options, and print what it took."""
    command = [*SUMMARIZE, *options]
    size = 0
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    for line in lines(count, kib, form):
        size += len(line) + 1
        process.stdin.write(line + b"\n")
    process.stdin.close()
    head = process.stdout.readline().decode().strip()
    process.stdout.read()
    process.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    print(head)
    print(f"{size / 1e6:.0f} MB as {form}: {cpu:.1f} s of CPU, {peak:.0f} MiB at most,", end=" ")
    seconds = time.perf_counter() - start
    print(f"{1e6 * cpu / count:.0f} us a report; {seconds:.0f} s with the generator")


@contextlib.contextmanager
def cluster(engine: str, workers: int) -> Iterator[str]:
    """Start a cluster on this machine; yield its address."""
    if engine == "dask":
        from distributed import LocalCluster

        options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(n_workers=workers, **options) as found:
            yield found.scheduler_address
    else:
        from ray.cluster_utils import Cluster

        found = Cluster(initialize_head=True, head_node_args={"num_cpus": workers})
        try:
            yield found.address
        finally:
            found.shutdown()


def read_by_workers(engine: str, workers: int, count: int, kib: float, form: str) -> None:
    """Have files read by one reader and by workers, in turn, and print how long each took."""
    times: dict[str, list[float]] = {"one reader": [], f"{workers} workers of {engine}": []}
    with tempfile.TemporaryDirectory() as folder, cluster(engine, workers) as address:
        files = [Path(folder) / f"part{at:03}.jsonl" for at in range(8 * workers)]
        with contextlib.ExitStack() as stack:
            outputs = [stack.enter_context(file.open("wb")) for file in files]
            for at, line in enumerate(lines(count, kib, form)):
                outputs[at * len(files) // count].write(line + b"\n")
        found = []
        for _ in range(3):
            for name, more in zip(times, ([], [f"--{engine}", address]), strict=True):
                start = time.perf_counter()
                command = [*SUMMARIZE, *map(str, files), "--format", "json", *more]
                found.append(subprocess.run(command, capture_output=True, check=True).stdout)
                times[name].append(time.perf_counter() - start)
        fleets = [msgspec.json.decode(text) for text in found]
        print("the same fleet" if all(fleet == fleets[0] for fleet in fleets) else "ANOTHER FLEET")
    for name, seconds in times.items():
        print(f"{name}: {statistics.median(seconds):.1f} s, the median of {len(seconds)}")


def by_parts(count: int, kib: float, by_group: str) -> None:
    """Print what so many reports would take on workers: one part is read, and copies of it are merged."""
    from mlbackends.fleet.collection import Collection
    from mlbackends.fleet.groups import fleet_of
    from mlbackends.fleet.membership import membership_of
    from mlbackends.fleet.parts import PART_BYTES, part_of, parts_of
    from mlbackends.fleet.sources import fleet_in

    def seconds(start: float) -> float:
        return time.process_time() - start

    with tempfile.TemporaryDirectory() as folder:
        file, nodes = Path(folder) / "part.jsonl", 0
        with file.open("wb") as output:
            for line in lines(count, kib, "json"):
                if output.tell() + len(line) >= PART_BYTES:
                    break
                output.write(line + b"\n")
                nodes += 1
        (sources,) = parts_of([str(file)])
        start = time.process_time()
        data = part_of(sources, looks=False)
        reading = seconds(start)
    parts = -(-count // nodes)
    collection, merging = Collection(), 0.0
    for at in range(parts):
        part = re.sub(rb'"node(?=[0-9])', b'"p%04d-node' % at, data)
        start = time.process_time()
        collection.merge(fleet_in(part, "a part"))
        merging += seconds(start)
    start = time.process_time()
    fleet = fleet_of(collection, membership=membership_of(by_group) if by_group else None)
    text = msgspec.json.encode(fleet)
    comparing = seconds(start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{parts} parts of {nodes:,}: {fleet.reported:,} reports; seconds of CPU, on this machine:")
    print(
        f"workers: {reading:.1f} for a part, {reading * parts:.0f} for all; a result has {len(data):,} bytes"
    )
    print(
        f"one process: {merging:.1f} to merge them, {comparing:.1f} to compare and write {len(text):,} bytes;"
    )
    print(f"it takes {peak:.0f} MiB at most, with {len(fleet.groups):,} groups")
    for workers in (16, 64):
        print(f"{workers} workers: {reading * parts / workers + merging + comparing:.0f} s")


def kept(count: int, kib: float, runs: int) -> None:
    """Keep the reports of runs, in the middle of which a driver is rolled out; print what each part took."""
    from mlbackends.fleet.collection import Collection
    from mlbackends.fleet.store import Keeper, opened
    from mlbackends.model.history import Asked

    with tempfile.TemporaryDirectory() as folder:
        cpu = {True: 0.0, False: 0.0}
        for run in range(runs):
            envelopes = [
                Envelope(
                    node=node,
                    report=msgspec.Raw(data.replace(b"560.35.03", b"580.65.06") if run > runs // 2 else data),
                )
                for node, data in reports(count, kib)
            ]
            for keeps in (False, True):
                start = time.process_time()
                collection = Collection()
                with contextlib.ExitStack() as stack:
                    keeper = None
                    if keeps:
                        opened_folder = stack.enter_context(opened(folder, writes=True, creates=True))
                        asked = Asked("hosts", "", (), "", "", 60.0, 64)
                        keeper = Keeper(opened_folder, asked, count)
                    for envelope in envelopes:
                        node = collection.add(envelope)
                        if keeper is not None:
                            keeper.add(node, envelope, collection, is_new=True)
                    if keeper is not None:
                        keeper.finish(collection)
                cpu[keeps] += time.process_time() - start
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        added = 1e6 * (cpu[True] - cpu[False]) / count / runs
        print(f"{runs} runs of {count:,}: {size / 1e6:.0f} MB; {added:.0f} us of CPU a report to keep it")
        for command in ("summarize", "history"):
            words = [sys.executable, "-m", "mlbackends", "fleet", command, folder]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
            print(f"{command}: {seconds:.1f} s of CPU")


def main() -> None:
    """Make the reports, and measure what reading them takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--form", choices=["json", "frame", "label"], default="json")
    parser.add_argument("--kib", type=float, default=17)
    parser.add_argument("--hazards", action="store_true")
    parser.add_argument("--by-group", help="of the fleet command; nodes are node000000 and so on")
    parser.add_argument("--engine", choices=["dask", "ray"], help="read files by its workers too")
    parser.add_argument("--parts", action="store_true", help="from one part, what all would take on workers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=int, metavar="RUNS", help="keep so many runs, and read them")
    given = parser.parse_args()
    if given.keep:
        kept(given.count, given.kib, given.keep)
    elif given.parts:
        by_parts(given.count, given.kib, given.by_group or "")
    elif given.engine:
        read_by_workers(given.engine, given.workers, given.count, given.kib, given.form)
    else:
        options = ["--hazards"] if given.hazards else []
        options += [f"--by-group={given.by_group}"] if given.by_group else []
        piped(given.count, given.kib, given.form, *options)


if __name__ == "__main__":
    main()

"""The JSON of Chrome's about:tracing, which ui.perfetto.dev opens: calls on the lanes of their threads.

Each call is a complete event ("ph":"X") with `ts` and `dur` in microseconds; processes and threads get
names by metadata events ("ph":"M"). Times count from the first call. Calls without a stamp in the trace
stand one behind the other: each says so by args.synthetic, and the whole by otherData.

Source: Trace Event Format, "Complete Events", "Metadata Events", "JSON Object Format".
"""

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import msgspec

from mlbackends.model.trace import Call, Record
from mlbackends.tracing.lanes import Placed, Placing, lane_name

ENDINGS = (".json", ".perfetto-trace.json", ".trace")
_HELD_BACK = 4096
"""So many calls are held back, to know which began first: a part of a graph comes after what it holds."""


def write(records: Iterable[Record], file: BinaryIO) -> int:
    """Write all calls; return how many. What is no call has no place in time and is left out."""
    encode = msgspec.json.Encoder().encode
    placing = Placing(100_000)
    pids: dict[tuple[str, int | None], int] = {}
    counts = {"real": 0, "synthetic": 0}
    file.write(b'{"displayTimeUnit":"ns","traceEvents":[\n')
    separator = b""
    for record, placed, origin in _from_the_first(_placed(records, placing)):
        source, process, _ = placed.lane
        if (source, process) not in pids:
            pids[source, process] = _pid(process, pids)
        counts["synthetic" if placed.synthetic else "real"] += 1
        file.write(separator + encode(_event(record, placed, origin, pids[source, process])))
        separator = b",\n"
    for event in _names(placing, pids):
        file.write(separator + encode(event))
        separator = b",\n"
    totals = {
        "calls": sum(counts.values()),
        "synthetic": counts["synthetic"] > 0,
        "synthetic_calls": counts["synthetic"],
        "time": "since the first call"
        + ("; calls without a stamp stand one behind the other" if counts["synthetic"] else ""),
    }
    file.write(b'\n],"otherData":' + encode(totals) + b"}\n")
    return sum(counts.values())


def _placed(records: Iterable[Record], placing: Placing) -> Iterator[tuple[Call, Placed]]:
    for record in records:
        placed = placing.place(record)
        if placed is not None and isinstance(record, Call):
            yield record, placed


def _from_the_first(
    calls: Iterator[tuple[Call, Placed]],
) -> Iterator[tuple[Call, Placed, int]]:
    """Add to each call when the first of all began."""
    held: list[tuple[Call, Placed]] = []
    for each in calls:
        held.append(each)
        if len(held) == _HELD_BACK:
            break
    origin = min((placed.start_ns for _, placed in held), default=0)
    for record, placed in held:
        yield record, placed, origin
    for record, placed in calls:
        yield record, placed, origin


def _pid(process: int | None, pids: dict[tuple[str, int | None], int]) -> int:
    """Return the process's number, or another one where it is not known or taken by another rank."""
    wanted = process if process is not None else 0
    taken = set(pids.values())
    while wanted in taken:
        wanted += 1
    return wanted


def _event(record: Call, placed: Placed, origin: int, pid: int) -> dict[str, Any]:
    created = "" if record.executed else f"{record.event} "
    args: dict[str, Any] = {
        "shape": _clean(record.shape),
        "dtype": record.dtype,
        "implementation": _clean(record.implementation),
        "isa": record.isa,
        "cache": record.cache,
        "slow_path": record.slow_path,
        "gflops": record.gflops,
        "gigabytes_per_second": record.gigabytes_per_second,
        "source": _clean(record.source),
        "line": record.line_number or None,
        "synthetic": placed.synthetic or None,
        "not_counted": None if record.counted or not record.executed else True,
    }
    return {
        "name": _clean(created + record.operation),
        "cat": f"{record.tracer},{record.kind}",
        "ph": "X",
        "ts": (placed.start_ns - origin) / 1000,
        "dur": placed.duration_ns / 1000,
        "pid": pid,
        "tid": placed.lane[2] or 0,
        "args": {name: value for name, value in args.items() if value not in {None, ""}},
    }


def _names(placing: Placing, pids: dict[tuple[str, int | None], int]) -> Iterator[dict[str, Any]]:
    for (source, process), pid in pids.items():
        name = lane_name((source, process, None))
        yield {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": _clean(name)}}
    for source, process, thread in placing.lanes:
        if (source, process) in pids:
            pid = pids[source, process]
            name = "calls" if thread is None else f"thread {thread}"
            args = {"name": name}
            yield {"name": "thread_name", "ph": "M", "pid": pid, "tid": thread or 0, "args": args}


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")

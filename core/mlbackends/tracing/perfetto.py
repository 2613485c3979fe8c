"""The JSON of Chrome's about:tracing, which ui.perfetto.dev opens: calls on the lanes of their threads.

Each call is a complete event ("ph":"X") with `ts` and `dur` in microseconds; processes and threads get
names by metadata events ("ph":"M"). Times count from the first call. Calls without a stamp in the trace
follow one another: args.synthetic marks each, otherData the whole.

Source: Trace Event Format, "Complete Events", "Metadata Events", "JSON Object Format".
"""

from collections.abc import Iterable
from itertools import chain, count, islice
from typing import BinaryIO

import msgspec

from mlbackends.base.writable import escaped
from mlbackends.model.trace import Call, Record
from mlbackends.tracing.lanes import Placing, lane_name

#: Calls held back to find out which began first: a graph partition comes after its primitives.
_BUFFERED = 4096


def write(records: Iterable[Record], file: BinaryIO) -> int:
    """Write all calls, and return their number. Other records have no time and are left out."""
    encode = msgspec.json.Encoder().encode
    placing = Placing()
    calls = (
        (record, placed)
        for record in records
        if isinstance(record, Call) and (placed := placing.place(record)) is not None
    )
    buffered = list(islice(calls, _BUFFERED))
    origin = min((placed.start_ns for _, placed in buffered), default=0)
    pids: dict[tuple[str, int | None], int] = {}
    total = synthetic = 0
    separator = b'{"displayTimeUnit":"ns","traceEvents":[\n'
    for record, placed in chain(buffered, calls):
        source, process, _ = placed.lane
        if (source, process) not in pids:
            # The process's number, or another one where that is not known or taken by another rank.
            used = set(pids.values())
            free = (number for number in count(process or 0) if number not in used)
            pids[source, process] = next(free)
        synthetic += placed.synthetic
        total += 1
        created = "" if record.executed else f"{record.event} "
        args = {
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
        event = {
            "name": _clean(created + record.operation),
            "cat": f"{record.tracer},{record.kind}",
            "ph": "X",
            "ts": (placed.start_ns - origin) / 1000,
            "dur": placed.duration_ns / 1000,
            "pid": pids[source, process],
            "tid": placed.lane[2] or 0,
            "args": {name: value for name, value in args.items() if value not in {None, ""}},
        }
        file.write(separator + escaped(encode(event)))
        separator = b",\n"
    for (source, process), pid in pids.items():
        name = _clean(lane_name((source, process, None)))
        event = {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}
        file.write(separator + escaped(encode(event)))
    for source, process, thread in placing.lanes:
        event = {
            "name": "thread_name",
            "ph": "M",
            "pid": pids[source, process],
            "tid": thread or 0,
            "args": {"name": "calls" if thread is None else f"thread {thread}"},
        }
        file.write(separator + escaped(encode(event)))
    behind = "; calls without a stamp follow one another" if synthetic else ""
    totals = {
        "calls": total,
        "synthetic": synthetic > 0,
        "synthetic_calls": synthetic,
        "time": f"since the first call{behind}",
    }
    file.write((b"" if total else separator) + b'\n],"otherData":' + encode(totals) + b"}\n")
    return total


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")

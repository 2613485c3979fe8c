"""How to run the calls that took longest again, outside of their program.

A call of oneDNN is a command of its benchdnn, a call of MKL a line of JSON: the routine and its arguments.
"""

import json

from mlbackends.model.trace import GraphPartition, MklCall, Primitive, Record, Ukernel
from mlbackends.model.trace_views import Repro, Reproduction
from mlbackends.tracing.groups import Groups
from mlbackends.tracing.numbers import whole_number
from mlbackends.tracing.repro import benchdnn

_BY = ("tracer", "operation", "shape", "dtype", "implementation", "memory_descriptors")


class Collector(Groups):
    """Groups calls, and writes down how to run each of the first `top` again; 0 is all."""

    def __init__(self, top: int = 20) -> None:
        super().__init__((*_BY, "attributes", "auxiliary", "propagation"), top=top)

    def result(self) -> Repro:
        """Return the calls, those that took longest first."""
        groups = self.sorted()
        calls = []
        for _, group in groups[: self.top] if self.top else groups:
            tool, text, notes = again(group.record)
            calls.append(
                Reproduction(
                    operation=group.record.operation,
                    shape=group.record.shape,
                    count=group.tally.count,
                    total_ns=group.tally.total,
                    tool=tool if text else "",
                    text=text,
                    notes=notes,
                    line=group.record.raw,
                )
            )
        return Repro(calls=tuple(calls), groups=len(groups))


def again(record: Record) -> tuple[str, str, tuple[str, ...]]:
    """Return the tool, the command or line for it, and notes."""
    if isinstance(record, MklCall):
        arguments = {
            name: value if (number := whole_number(value)) is None else number
            for name, value in record.derived.arguments.items()
            if not value.startswith("0x")
        }
        text = json.dumps({"routine": record.signature.routine, **arguments})
        return "json", text, ("arrays and scalars behind addresses are not in the line",)
    if isinstance(record, Primitive):
        return ("benchdnn", *benchdnn.command(record.signature))
    if isinstance(record, Ukernel):
        return "", "", ("a micro-kernel that the program called itself",)
    if isinstance(record, GraphPartition):
        return "", "", ("a part of a graph: dump it with ONEDNN_GRAPH_DUMP=graph for benchdnn",)
    return "", "", ("not a call",)

"""The grammar of oneDNN's lines: from a whole line to a record, or to None.

What is taken is strict where a torn line could pass for a whole one, and open where versions differ:
components, cache states and info topics that are new are taken as they come.

Fields of an exec or create line behind the operation, by version:

    MKL-DNN 0.x          primitive, implementation, propagation, descriptors, auxiliary, problem, time
    oneDNN 1.0           engine first
    1.1 to 3.13          attributes behind the descriptors

Source: oneDNN 2.0 to 3.13, src/common/verbose.cpp and verbose.hpp; MKL-DNN 0.21, src/common/verbose.cpp.
"""

import re

from mlbackends.model.signature import PartitionSignature, PrimitiveSignature
from mlbackends.model.trace import (
    AnyRecord,
    Check,
    Dispatch,
    GraphPartition,
    Header,
    Info,
    Message,
    Primitive,
    Ukernel,
)
from mlbackends.tracing.durations import nanoseconds
from mlbackends.tracing.formats.onednn import known
from mlbackends.tracing.formats.onednn.known import MILLISECONDS
from mlbackends.tracing.formats.onednn.opening import Opening, opened
from mlbackends.tracing.numbers import rejoined

ENGINE = re.compile(r"(?:cpu|gpu)(?::\d+)?|cpu2gpu|gpu2cpu")
_PLACE = re.compile(r"[^,]*\.[A-Za-z]{1,4}:\d+ *")
_VERSION = re.compile(r"(?:oneDNN|DNNL|Intel MKL-DNN|MKL-DNN) v(\S+) \(([^()]*)\)?(.*)")
_WORD = re.compile(r"[A-Za-z0-9_]*")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_STATE = re.compile(r"[a-z_]*")
_IMPLEMENTATION = re.compile(r"[\w:+.\-\[\] ]*")
_AUXILIARY = re.compile(r"(?:[A-Za-z][\w\-]*[: ].*|[A-Za-z_]\w*)?")
_PROBLEM = re.compile(r"[^\s,]*")
_FOREIGN = ("MKL_VERBOSE ", "MKL ERROR: ", "MKL FATAL ERROR: ")
"""What begins a line of MKL: one that stands within a line tore it."""
_LEVELS = {"error": "error", "warn": "warning", "warning": "warning", "debuginfo": "debug"}


def parse(line: str) -> AnyRecord | None:
    """Return the record of one line, None if it is not one of oneDNN's from its first byte to its last."""
    again = known.record(line)
    if again is not None:
        return again
    head = opened(line)
    if head is None or "_verbose," in line[len(head.key.partition(",")[0]) + 1 :]:
        return None
    if any(each in line for each in _FOREIGN):
        return None
    record = _read(line, head)
    if isinstance(record, Primitive):
        known.remember(record)
    return record


def _read(line: str, head: Opening) -> AnyRecord | None:
    operation, _, state = head.fields[0].partition(":")
    rest = head.fields[1:]
    if operation == "info":
        return _info(line, head, rest)
    if operation in _LEVELS:
        return _message(line, head, operation, "", rest)
    if state == "dispatch":
        return _dispatch(line, head, rest)
    if state == "check":
        return _check(line, head, operation, rest)
    if _STATE.fullmatch(state) is None:
        return None
    if head.component == "graph" or line.startswith("onednn_graph_verbose"):
        return _partition(line, head, operation, state, rest)
    if operation in {"exec", "create", "create_nested"}:
        return _primitive(line, head, operation, state, rest)
    return _outside(line, head, rest)


def _info(line: str, head: Opening, rest: list[str]) -> AnyRecord | None:
    if not rest:
        return None
    text = ",".join(rest)
    version = _VERSION.fullmatch(text)
    if version:
        facts = {"commit": version[2].removeprefix("commit "), "format": head.format}
        if not text.endswith(")"):
            return None
        return Header(tracer="onednn", raw=line, version=version[1], facts=facts)
    named = (part.partition(":") for part in rest)
    values = {name: value for name, colon, value in named if colon and name}
    topic = rest[0].partition(":")[0]
    return Info(
        tracer="onednn",
        raw=line,
        start_ns=head.start_ns,
        clock=_clock(head),
        component=head.component,
        topic="template" if topic == "prim_template" else topic,
        text=text,
        values=values,
    )


def _message(
    line: str, head: Opening, level: str, component: str, rest: list[str]
) -> Message | None:
    if not rest:
        return None
    place = rest.pop() if len(rest) > 1 and _PLACE.fullmatch(rest[-1]) else ""
    who = rest.pop(0) if len(rest) > 1 and _WORD.fullmatch(rest[0]) else ""
    return Message(
        tracer="onednn",
        raw=line,
        start_ns=head.start_ns,
        clock=_clock(head),
        component=component or head.component,
        level=_LEVELS[level],
        who=who,
        text=",".join(rest),
        place=place.strip(),
    )


def _outside(line: str, head: Opening, rest: list[str]) -> AnyRecord | None:
    """Lines that a part prints by itself: `cpu,debuginfo,platform,cache,...`, `cpu,error,acl,...`."""
    who = head.fields[0]
    if not rest or who not in {"cpu", "gpu", "jit_perf", "ocl", "sycl"}:
        return None
    if rest[0] in _LEVELS and len(rest) > 1:
        if rest[1] != "platform":
            return _message(line, head, rest[0], who, rest[1:])
        rest = rest[1:]
    elif len(rest) < 2:
        return None
    named = (part.partition(":") for part in rest)
    return Info(
        tracer="onednn",
        raw=line,
        start_ns=head.start_ns,
        clock=_clock(head),
        component=head.component,
        topic=rest[0],
        text=",".join(rest),
        values={name: value for name, colon, value in named if colon and name},
    )


def _dispatch(line: str, head: Opening, rest: list[str]) -> Dispatch | None:
    """Read a refusal; its reason may hold commas, so it is what remains between the ends."""
    if len(rest) < 2:
        return None
    who, *rest = rest
    place = rest.pop() if _PLACE.fullmatch(rest[-1]) else ""
    if not place and head.component != "graph":
        return None
    refused = None
    if len(rest) > 8 and ENGINE.fullmatch(rest[0]) and _WORD.fullmatch(rest[1]):
        refused = _signature(head, "create:dispatch", rest[:8])
        rest = rest[8:]
    if not rest:
        return None
    return Dispatch(
        tracer="onednn",
        raw=line,
        start_ns=head.start_ns,
        clock=_clock(head),
        component=head.component,
        who=who,
        reason=",".join(rest),
        place=place.strip(),
        refused=refused,
    )


def _check(line: str, head: Opening, event: str, rest: list[str]) -> Check | None:
    if len(rest) < 3 or not _PLACE.fullmatch(rest[-1]):
        return None
    return Check(
        tracer="onednn",
        raw=line,
        start_ns=head.start_ns,
        clock=_clock(head),
        component=head.component,
        event=event,
        who=rest[0],
        reason=",".join(rest[1:-1]),
        place=rest[-1].strip(),
    )


def _primitive(
    line: str, head: Opening, operation: str, state: str, rest: list[str]
) -> AnyRecord | None:
    timed = state != "start"
    if not rest:
        return None
    if ENGINE.fullmatch(rest[0]):
        oldest = line.startswith("mkldnn_verbose") and len(rest) == 8
        count = 8 if oldest else 9
    else:
        rest, count = ["", *rest], 8
    fields = rest if timed else [*rest, "0"]
    whole = rejoined(fields, count, _can_be_nine if count == 9 else _can_be_eight)
    if whole is None:
        return None
    if count == 8:  # no attributes before oneDNN 1.1
        whole = [*whole[:5], "", *whole[5:]]
    told = operation if operation != "exec" or not state else f"exec:{state}"
    kind = Ukernel if head.component == "ukernel" else Primitive
    duration = nanoseconds(whole[8], MILLISECONDS)
    return kind(
        tracer="onednn",
        raw=line,
        start_ns=head.start_ns,
        clock=_clock(head),
        duration_ns=duration if timed else None,
        signature=_signature(head, head.fields[0], whole[:8]),
        event=told,
        cache_state="" if operation == "exec" else state,
    )


def _can_be_nine(fields: list[str]) -> bool:
    attributes, rest = fields[5], [*fields[:5], *fields[6:]]
    return attributes[:1].strip("+-.0123456789") == attributes[:1] and _can_be_eight(rest)


def _can_be_eight(fields: list[str]) -> bool:
    """Tell whether fields are engine, primitive, implementation, propagation, descriptors and so on."""
    _, primitive, implementation, propagation, descriptors, auxiliary, problem, time = fields
    return bool(
        _NAME.fullmatch(primitive)
        and _IMPLEMENTATION.fullmatch(implementation)
        and _WORD.fullmatch(propagation)
        and (":" in descriptors or not descriptors)
        and _AUXILIARY.fullmatch(auxiliary)
        and _PROBLEM.fullmatch(problem)
        and nanoseconds(time, MILLISECONDS) is not None
    )


def _signature(head: Opening, operation: str, fields: list[str]) -> PrimitiveSignature:
    engine, primitive, implementation, propagation, descriptors, attributes, auxiliary, problem = (
        fields
    )
    return PrimitiveSignature(
        tracer="onednn",
        key=",".join([head.key, operation, *fields]),
        format=head.format,
        component=head.component,
        engine=engine,
        primitive=primitive,
        implementation=implementation,
        propagation=propagation,
        memory_descriptors=descriptors,
        attributes=attributes,
        auxiliary=auxiliary,
        problem=problem,
    )


def _partition(
    line: str, head: Opening, operation: str, state: str, rest: list[str]
) -> GraphPartition | None:
    """Read a partition: 10 fields with the time, one more since 3.13 that tells the scratchpad."""
    if operation not in {"exec", "compile"}:
        return None
    scratchpad = [index for index, text in enumerate(rest) if text.startswith("scratchpad:")]
    fields = rejoined(rest, 11 if scratchpad else 10, _can_be_partition)
    duration = None if fields is None else nanoseconds(fields[-1], MILLISECONDS)
    if fields is None or duration is None:
        return None
    return GraphPartition(
        tracer="onednn",
        raw=line,
        start_ns=head.start_ns,
        clock=_clock(head),
        duration_ns=duration,
        event=operation,
        cache_state=state,
        signature=PartitionSignature(
            tracer="onednn",
            key=",".join([head.key, head.fields[0], *fields[:-1]]),
            format=head.format,
            engine=fields[0],
            partition=fields[1],
            partition_kind=fields[2],
            operations=tuple(fields[3].split(";")),
            data_formats=fields[4],
            logical_tensors=fields[5],
            fpmath_mode=fields[6].removeprefix("fpm:"),
            scratchpad=fields[7].removeprefix("scratchpad:") if scratchpad else "",
            implementation=fields[-3],
            backend=fields[-2],
        ),
    )


def _can_be_partition(fields: list[str]) -> bool:
    return bool(
        ENGINE.fullmatch(fields[0])
        and fields[1].isdecimal()
        and (":" in fields[5] or not fields[5])
        and _WORD.fullmatch(fields[-2])
        and fields[-2]
        and nanoseconds(fields[-1], MILLISECONDS) is not None
    )


def _clock(head: Opening) -> str:
    return "" if head.start_ns is None else "epoch"

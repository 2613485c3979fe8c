"""The grammar of oneDNN's lines: from a whole line to a record, or to None.

    onednn_verbose,v1,1795258901078.068115,primitive,exec,...
    onednn_verbose,1795258934729,712891,exec,...            a locale with decimal commas
    dnnl_verbose,exec,...                                   oneDNN 1.1 to 2.4
    mkldnn_verbose,exec,...                                 MKL-DNN 0.x, oneDNN 1.0

A line begins with marker, format, time stamp and component. The `template:` line of a log gives the
order of fields but lies about the stamp, which stands before the component. Fields of an exec or
create line behind the operation, by version:

    MKL-DNN 0.x          primitive, implementation, propagation, descriptors, auxiliary, problem, time
    oneDNN 1.0           engine first
    1.1 to 3.13          attributes behind the descriptors

What is taken is strict where a torn line could pass for a whole one, and open where versions differ:
components, cache states and info topics that are new are taken as they come.

Source: oneDNN 2.0 to 3.13, src/common/verbose.cpp and verbose.hpp; MKL-DNN 0.21, src/common/verbose.cpp.
"""

import re
from itertools import islice
from typing import Any, NamedTuple

from mlbackends.model.signature import PartitionSignature, PrimitiveSignature
from mlbackends.model.trace import (
    AnyRecord,
    Call,
    Check,
    Dispatch,
    GraphPartition,
    Header,
    Info,
    Message,
    Primitive,
    Ukernel,
)
from mlbackends.tracing.formats.onednn.keys import MILLISECONDS
from mlbackends.tracing.numbers import nanoseconds, rejoined

MARKERS = ("onednn_verbose", "dnnl_verbose", "mkldnn_verbose", "onednn_graph_verbose")
_COMPONENTS = frozenset({"primitive", "graph", "common", "ukernel"})
_ENGINE = re.compile(r"(?:cpu|gpu)(?::\d+)?|cpu2gpu|gpu2cpu")
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
_TIME = re.compile(r",\d++(?:[.,]\d++)?+(?:e[-+]\d++)?+(?=[^\d.,])(?![eE](?:[-+\d]|$))")
_MOST_TRIED = 32
"""Numbers with a text behind them stand before the time too, but few do: `,64x64,`."""


class _Head(NamedTuple):
    """How a line begins. key: the head without the stamp. common: what all records of the line have."""

    key: str
    format: str
    component: str
    common: dict[str, Any]


def parse(line: str) -> AnyRecord | None:
    """Return the record of one line, None if it is not one of oneDNN's from its first byte to its last."""
    marker, _, behind = line.partition(",")
    if marker not in MARKERS or "_verbose," in behind or any(each in line for each in _FOREIGN):
        return None
    fields = behind.split(",")
    form = fields.pop(0) if fields[0][:1] == "v" and fields[0][1:].isdecimal() else ""
    start = None
    if fields and fields[0][:1].isdecimal():
        start, fields = _stamp(fields)
    component = fields.pop(0) if fields and fields[0] in _COMPONENTS else ""
    if not fields:
        return None
    key = ",".join(part for part in (marker, form, component) if part)
    clock = "" if start is None else "epoch"
    common = {"tracer": "onednn", "raw": line, "start_ns": start, "clock": clock}
    return _record(_Head(key, form, component, common), fields)


def split(line: str) -> tuple[AnyRecord, str] | None:
    """Return the record of the call that a line begins with and the program's text behind it, or None.

    The time is the line's last word, so what is no number begins the text: `...,0.0123Epoch 1`. What would
    go on as a number cannot be distinguished: a digit, `.`, `,` or an exponent right behind the time are read
    as more of it, or leave the line unread; blanks alone stay with it.
    """
    for found in islice(_TIME.finditer(line), _MOST_TRIED):
        record = parse(line[: found.end()])
        if isinstance(record, Call) and record.duration_ns is not None:
            return record, line[found.end() :]
    return None


def _stamp(fields: list[str]) -> tuple[int | None, list[str]]:
    """Return the stamp in nanoseconds and the fields behind it; milliseconds have six decimals.

    A stamp that is damaged is None: the call is there all the same.
    """
    whole, dot, fraction = fields[0].partition(".")
    rest = fields[1:]
    if not dot and rest and len(rest[0]) == 6 and rest[0].isdecimal():
        fraction, rest = rest[0], rest[1:]
    if not whole.isdecimal() or (fraction and not fraction.isdecimal()) or len(whole) > 18:
        return None, rest
    return int(whole) * 1_000_000 + int(fraction.ljust(6, "0")[:6]), rest


def _record(head: _Head, fields: list[str]) -> AnyRecord | None:
    operation, _, state = fields[0].partition(":")
    rest = fields[1:]
    if operation == "info":
        return _info(head, rest)
    if operation in _LEVELS:
        return _message(head, operation, head.component, rest)
    if state == "dispatch":
        return _dispatch(head, rest)
    if state == "check":
        if len(rest) < 3 or not _PLACE.fullmatch(rest[-1]):
            return None
        return Check(
            **head.common,
            component=head.component,
            event=operation,
            who=rest[0],
            reason=",".join(rest[1:-1]),
            place=rest[-1].strip(),
        )
    if _STATE.fullmatch(state) is None:
        return None
    if head.component == "graph" or head.key.startswith("onednn_graph_verbose"):
        return _partition(head, fields[0], rest)
    if operation in {"exec", "create", "create_nested"}:
        return _primitive(head, fields[0], rest)
    return _outside(head, fields[0], rest)


def _values(fields: list[str]) -> dict[str, str]:
    named = (part.partition(":") for part in fields)
    return {name: value for name, colon, value in named if colon and name}


def _info(head: _Head, rest: list[str]) -> AnyRecord | None:
    if not rest:
        return None
    text = ",".join(rest)
    version = _VERSION.fullmatch(text)
    if version:
        facts = {"commit": version[2].removeprefix("commit "), "format": head.format}
        if not text.endswith(")"):
            return None
        raw = head.common["raw"]
        return Header(tracer="onednn", raw=raw, version=version[1], facts=facts)
    topic = rest[0].partition(":")[0]
    topic = "template" if topic == "prim_template" else topic
    return Info(
        **head.common, component=head.component, topic=topic, text=text, values=_values(rest)
    )


def _message(head: _Head, level: str, component: str, rest: list[str]) -> Message | None:
    if not rest:
        return None
    place = rest.pop() if len(rest) > 1 and _PLACE.fullmatch(rest[-1]) else ""
    who = rest.pop(0) if len(rest) > 1 and _WORD.fullmatch(rest[0]) else ""
    return Message(
        **head.common,
        component=component,
        level=_LEVELS[level],
        who=who,
        text=",".join(rest),
        place=place.strip(),
    )


def _outside(head: _Head, who: str, rest: list[str]) -> AnyRecord | None:
    """Read what a part prints by itself: `cpu,debuginfo,platform,cache,...`, `cpu,error,acl,...`."""
    if not rest or who not in {"cpu", "gpu", "jit_perf", "ocl", "sycl"}:
        return None
    if rest[0] in _LEVELS and len(rest) > 1:
        if rest[1] != "platform":
            return _message(head, rest[0], who, rest[1:])
        rest = rest[1:]
    elif len(rest) < 2:
        return None
    return Info(
        **head.common,
        component=head.component,
        topic=rest[0],
        text=",".join(rest),
        values=_values(rest),
    )


def _dispatch(head: _Head, rest: list[str]) -> Dispatch | None:
    """Read a refusal; its reason may hold commas, so it is what remains between the ends."""
    if len(rest) < 2:
        return None
    who, *rest = rest
    place = rest.pop() if _PLACE.fullmatch(rest[-1]) else ""
    if not place and head.component != "graph":
        return None
    refused = None
    if len(rest) > 8 and _ENGINE.fullmatch(rest[0]) and _WORD.fullmatch(rest[1]):
        refused = _signature(head, "create:dispatch", rest[:8])
        rest = rest[8:]
    if not rest:
        return None
    return Dispatch(
        **head.common,
        component=head.component,
        who=who,
        reason=",".join(rest),
        place=place.strip(),
        refused=refused,
    )


def _primitive(head: _Head, event: str, rest: list[str]) -> AnyRecord | None:
    operation, _, state = event.partition(":")
    if not rest:
        return None
    if _ENGINE.fullmatch(rest[0]):
        is_oldest = head.key.startswith("mkldnn_verbose") and len(rest) == 8
        count = 8 if is_oldest else 9
    else:
        rest, count = ["", *rest], 8
    timed = state != "start"
    fields = rest if timed else [*rest, "0"]
    whole = rejoined(fields, count, _can_be_nine if count == 9 else _can_be_eight)
    if whole is None:
        return None
    if count == 8:  # no attributes before oneDNN 1.1
        whole = [*whole[:5], "", *whole[5:]]
    kind = Ukernel if head.component == "ukernel" else Primitive
    return kind(
        **head.common,
        duration_ns=nanoseconds(whole[8], MILLISECONDS) if timed else None,
        signature=_signature(head, event, whole[:8]),
        event=event if operation == "exec" and state else operation,
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


_FIELDS = (
    *("engine", "primitive", "implementation", "propagation"),
    *("memory_descriptors", "attributes", "auxiliary", "problem"),
)


def _signature(head: _Head, event: str, fields: list[str]) -> PrimitiveSignature:
    return PrimitiveSignature(
        tracer="onednn",
        key=",".join([head.key, event, *fields]),
        format=head.format,
        component=head.component,
        **dict(zip(_FIELDS, fields, strict=True)),
    )


def _partition(head: _Head, event: str, rest: list[str]) -> GraphPartition | None:
    """Read a partition: 10 fields with the time, one more since 3.13 that tells the scratchpad."""
    operation, _, state = event.partition(":")
    if operation not in {"exec", "compile"}:
        return None
    scratchpad = any(text.startswith("scratchpad:") for text in rest)
    fields = rejoined(rest, 11 if scratchpad else 10, _can_be_partition)
    duration = None if fields is None else nanoseconds(fields[-1], MILLISECONDS)
    if fields is None or duration is None:
        return None
    return GraphPartition(
        **head.common,
        duration_ns=duration,
        event=operation,
        cache_state=state,
        signature=PartitionSignature(
            tracer="onednn",
            key=",".join([head.key, event, *fields[:-1]]),
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
        _ENGINE.fullmatch(fields[0])
        and fields[1].isdecimal()
        and (":" in fields[5] or not fields[5])
        and _WORD.fullmatch(fields[-2])
        and fields[-2]
        and nanoseconds(fields[-1], MILLISECONDS) is not None
    )

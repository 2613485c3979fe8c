"""The grammar of oneDNN's lines: from a whole line to a record, or to None.

    onednn_verbose,v1,1795258901078.068115,primitive,exec,...
    onednn_verbose,1795258934729,712891,exec,...            a locale with decimal commas
    dnnl_verbose,exec,...                                   oneDNN 1.1 to 2.4
    mkldnn_verbose,exec,...                                 MKL-DNN 0.x, oneDNN 1.0

A line begins with marker, format, time stamp and component. The `template:` line of a log gives the
order of fields but is wrong about the stamp, which comes before the component. Fields of an exec or
create line behind the operation, by version:

    MKL-DNN 0.x          primitive, implementation, propagation, descriptors, auxiliary, problem, time
    oneDNN 1.0           engine first
    1.1 to 3.13          attributes behind the descriptors

GPUs have no time at level 1 of 1.0 and 1.1. Lines without a primitive have other forms: kernels that
a graph runs on the host (3.12), Arm's library (`exec:external`), padding on a GPU (1.8).

What is taken is strict where a torn line could pass for a whole one, and open where versions differ:
components, cache states and info topics that are new are taken as they come.

Source: MKL-DNN 0.13 to oneDNN 3.13: src/common/verbose.cpp and verbose.hpp, primitive.cpp, gemm.cpp and
every other file of these tags that prints a marker.
"""

import re
from itertools import islice
from typing import Any, NamedTuple

from mlbackends.base.quantities import TIME_UNITS
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
from mlbackends.tracing.numbers import LONGEST, is_stamp, nanoseconds, rejoined

#: The unit of oneDNN's times, in nanoseconds.
MILLISECONDS = TIME_UNITS["ms"]
MARKERS = ("onednn_verbose", "dnnl_verbose", "mkldnn_verbose", "onednn_graph_verbose")
_COMPONENTS = frozenset({"primitive", "graph", "common", "ukernel"})
_ENGINE = re.compile(r"(?:cpu|gpu)(?::\d+)?|cpu2gpu|gpu2cpu")
_PLACE = re.compile(r"[^,]*\.[A-Za-z]{1,4}:\d+ *")
_VERSION = re.compile(
    r"(?:oneDNN|DNNL|(?:Intel(?:\(R\))? )?MKL-DNN) v(\S+) \((?:commit |Git Hash )?([^()]*)(\))?(,.*)?"
)
_WORD = re.compile(r"[A-Za-z0-9_]*")
_STATE = re.compile(r"[a-z_]*")
_ANY = re.compile(r".*", re.DOTALL)
_NAMED = re.compile(r"(?:.*:.*)?", re.DOTALL)
#: The fields of a primitive between the event and the time, and what each may be.
_PRIMITIVE = {
    "engine": _ENGINE,
    "primitive": re.compile(r"(?![cg]pu$)[a-z][a-z0-9_]*"),
    "implementation": re.compile(r"[\w:+.\-\[\] ]*"),
    "propagation": _WORD,
    "memory_descriptors": _NAMED,
    "attributes": re.compile(r"(?:[^-+.0-9].*)?", re.DOTALL),
    "auxiliary": re.compile(r"(?:[A-Za-z][\w\-]*[: ].*|[A-Za-z_]\w*)?"),
    "problem": re.compile(r"[^\s,]*(?: [\dx]+)?"),
}


def _form(*left_out: str, **replaced: str) -> dict[str, re.Pattern[str]]:
    """Return the fields of a primitive without some, and with others that may be less; it has sizes."""
    replaced = {"problem": f"(?!$){_PRIMITIVE['problem'].pattern}", **replaced}
    forms = {name: form for name, form in _PRIMITIVE.items() if name not in left_out}
    return {name: re.compile(replaced.get(name, form)) for name, form in forms.items()}


_PROPAGATION = r"undef|(?:for|back)ward\w*"
#: The forms of a primitive's line, each with what its marker begins with.
_FORMS = (
    ("", _PRIMITIVE),
    ("onednn", _form("auxiliary", primitive="gemm_api")),  # 2.7
    ("dnnl", _form("attributes", primitive="reorder", auxiliary=r"num:\d+")),  # 1.0
    ("mkldnn", _form("attributes")),
    ("mkldnn", _form("engine", "attributes")),
    ("dnnl", _form("implementation", propagation=_PROPAGATION)),
    ("mkldnn", _form("implementation", "attributes", propagation=_PROPAGATION)),
    ("mkldnn", _form("implementation", "engine", "attributes", propagation=_PROPAGATION)),
    ("dnnl", _form("propagation", "attributes", "auxiliary", primitive="zero_pad")),  # 1.8
    ("mkldnn", {"primitive": re.compile("")}),  # 0.x, what no code describes
)
_EXTERNAL = {"implementation": re.compile(r"[^,]+")}
#: A kernel that a graph's backend runs by itself, as graph/interface/op.cpp prints it.
_OF_GRAPH = re.compile(
    r"([cg]pu),(_\w+)\(([^()]*)\),\d+(?:,attrs:\{([^{}]*)\})?"
    r",inputs:\{([^{}]*)\},outputs:\{([^{}]*)\},(.*)"
)
_PARTITION = {
    "engine": _ENGINE,
    "partition": re.compile(r"\d+"),
    "partition_kind": _ANY,
    "operations": _ANY,
    "data_formats": _ANY,
    "logical_tensors": _NAMED,
    "fpmath_mode": _ANY,
    "implementation": _ANY,
    "backend": re.compile(r"[A-Za-z0-9_]+"),
}
#: What begins a line of MKL: inside a line, it means that the line was torn.
_FOREIGN = ("MKL_VERBOSE ", "MKL ERROR: ", "MKL FATAL ERROR: ")
_LEVELS = {"error": "error", "warn": "warning", "warning": "warning", "debuginfo": "debug"}
_TIME = re.compile(r",\d++(?:[.,]\d++)?+(?:e[-+]\d++)?+(?=[^\d.,])(?![eE](?:[-+\d]|$))")
#: Numbers with text behind them also come before the time, but rarely: `,64x64,`.
_MOST_TRIED = 32
_AFTER_FORMAT = len("onednn_verbose,v1,")
_FORMAT = ord("v")
#: Ends the key of a line without a time: no other key can be the same.
_UNTIMED = b"\n"


class _Head(NamedTuple):
    """How a line begins. key: the head without the stamp. common: what all records of the line have."""

    key: str
    format: str
    component: str
    common: dict[str, Any]


def parse(line: str) -> AnyRecord | None:
    """Return the record of one line, None if it is not one of oneDNN's from its first byte to its last."""
    marker, _, behind = line.partition(",")
    if marker not in MARKERS or "_verbose," in behind or any(start in line for start in _FOREIGN):
        return None
    fields = behind.split(",")
    form = fields.pop(0) if fields[0][:1] == "v" and fields[0][1:].isdecimal() else ""
    start = None
    if fields and fields[0][:1].isdecimal():
        whole, dot, fraction = fields.pop(0).partition(".")
        # Milliseconds have six decimals, behind a point or a comma.
        if not dot and fields and len(fields[0]) == 6 and fields[0].isdecimal():
            fraction = fields.pop(0)
        stamp = whole + fraction.ljust(6, "0")[:6]
        if is_stamp(stamp.encode("utf-8", "replace")):
            start = int(stamp)
    component = fields.pop(0) if fields and fields[0] in _COMPONENTS else ""
    if not fields:
        return None
    key = ",".join(part for part in (marker, form, component) if part)
    clock = "" if start is None else "epoch"
    common = {"tracer": "onednn", "raw": line, "start_ns": start, "clock": clock}
    event, *rest = fields
    return _record(_Head(key, form, component, common), event, rest)


def cut(line: bytes) -> tuple[bytes, float | None, int | None] | None:
    """Return the line without stamp and time, the time and the stamp in nanoseconds.

    A line that does not end in a number is whole but for its stamp, and has no time. None for a line that
    only parse() can read. The line may have its end.
    """
    key, _, time = line.rpartition(b",")
    duration = None
    try:
        duration = float(time) * MILLISECONDS
    except ValueError:
        key = line.rstrip(b"\r\n") + _UNTIMED
    else:
        if not 0 <= duration <= LONGEST or not 48 <= time[0] <= 57:  # a digit, and no blank
            return None
    # A stamp begins behind the marker and the format; nothing else has a digit there.
    if not line[_AFTER_FORMAT : _AFTER_FORMAT + 1].isdigit():
        return key, duration, None
    start = line.find(b",") + 1
    if line[start] == _FORMAT:
        start = _AFTER_FORMAT
    end = key.find(b",", start)
    whole, _, fraction = key[start:end].partition(b".")
    if len(fraction) != 6 or not is_stamp(whole + fraction):
        return None
    return key[:start] + key[end + 1 :], duration, int(whole + fraction)


def split(line: str) -> tuple[AnyRecord, str] | None:
    """Return the record of the call that a line begins with and the program's text behind it, or None.

    The time is the line's last word, so what is not a number begins the text: `...,0.0123Epoch 1`. What would
    go on as a number cannot be distinguished: a digit, `.`, `,` or an exponent right behind the time are read
    as more of it, or leave the line unread; blanks alone stay with it.
    """
    for time in islice(_TIME.finditer(line), _MOST_TRIED):
        record = parse(line[: time.end()])
        if isinstance(record, Call) and record.duration_ns is not None:
            return record, line[time.end() :]
    return None


def _record(head: _Head, event: str, rest: list[str]) -> AnyRecord | None:
    """Read the fields behind the head. event: "exec", "create:cache_hit", "info", ..."""
    operation, _, state = event.partition(":")
    if not rest:
        return None
    if operation == "info":
        if version := _VERSION.fullmatch(",".join(rest)):
            if not version[3]:
                return None
            facts = {"commit": version[2], "format": head.format}
            raw = head.common["raw"]
            if version[4]:
                facts["isa"] = version[4][1:]
            return Header(tracer="onednn", raw=raw, version=version[1], facts=facts)
        topic = rest[0].partition(":")[0]
        return _info(head, "template" if topic == "prim_template" else topic, rest)
    if operation in _LEVELS:
        return _message(head, operation, head.component, rest)
    if state == "dispatch":
        # The reason of a refusal may hold commas, so it is what remains between the ends.
        origin, *rest = rest
        place = rest.pop() if rest and _PLACE.fullmatch(rest[-1]) else ""
        if not place and head.component != "graph":
            return None
        refused = None
        if len(rest) > 8 and _ENGINE.fullmatch(rest[0]) and _WORD.fullmatch(rest[1]):
            refused = _signature(head, "create:dispatch", dict(zip(_PRIMITIVE, rest, strict=False)))
            rest = rest[8:]
        if not rest:
            return None
        return Dispatch(
            **head.common,
            component=head.component,
            origin=origin,
            reason=",".join(rest),
            place=place.strip(),
            refused=refused,
        )
    if state == "check":
        origin, *reason, place = rest if len(rest) > 2 else ("", "")
        if not _PLACE.fullmatch(place):
            return None
        return Check(
            **head.common,
            component=head.component,
            event=event,
            origin=origin,
            reason=",".join(reason),
            place=place.strip(),
        )
    if state == "debug":
        return _message(head, "debuginfo", head.component, rest)
    if _STATE.fullmatch(state) is None:
        return None
    if head.component == "graph" or head.key.startswith("onednn_graph_verbose"):
        if found := _OF_GRAPH.fullmatch(",".join(rest)):
            return _of_graph(head, event, found)
        return _partition(head, event, rest) if operation in {"exec", "compile"} else None
    if operation in {"exec", "create", "create_nested"}:
        return _primitive(head, event, rest)
    # What a part prints by itself: `cpu,debuginfo,platform,cache,...`, `cpu,error,acl,...`.
    if event not in {"cpu", "gpu", "jit_perf", "ocl", "sycl"} or len(rest) < 2:
        return None
    if rest[0].endswith(("_error", "_exception")):
        return _message(head, "error", event, rest)
    if rest[0] in _LEVELS and rest[1] != "platform":
        return _message(head, rest[0], event, rest[1:])
    fields = rest[1:] if rest[0] in _LEVELS else rest
    return _info(head, fields[0], fields)


def _info(head: _Head, topic: str, fields: list[str]) -> Info:
    values = (part.partition(":") for part in fields)
    return Info(
        **head.common,
        component=head.component,
        topic=topic,
        text=",".join(fields),
        values={name: value for name, colon, value in values if colon and name},
    )


def _message(head: _Head, level: str, component: str, rest: list[str]) -> Message:
    place = rest.pop() if len(rest) > 1 and _PLACE.fullmatch(rest[-1]) else ""
    origin = rest.pop(0) if len(rest) > 1 and _WORD.fullmatch(rest[0]) else ""
    return Message(
        **head.common,
        component=component,
        level=_LEVELS[level],
        origin=origin,
        text=",".join(rest),
        place=place.strip(),
    )


def _primitive(head: _Head, event: str, rest: list[str]) -> Primitive | Ukernel | None:
    operation, _, state = event.partition(":")
    forms = [form for marker, form in _FORMS if head.key.startswith(marker)]
    if state == "external":
        forms.append(_EXTERNAL)
    found = None
    if state != "start":
        found = next(filter(None, (_fitted(form, rest) for form in forms)), None)
    if found is None and (state == "start" or rest[0].startswith("gpu")):  # without a time
        found = next(filter(None, (_fitted(form, [*rest, "0"]) for form in forms)), None)
        if found is None:
            return None
        found["time"] = ""
    if found is None:
        return None
    time = found.pop("time")
    kind = Ukernel if head.component == "ukernel" else Primitive
    return kind(
        **head.common,
        duration_ns=nanoseconds(time, MILLISECONDS) if time else None,
        signature=_signature(head, event, found),
        event=event if state == "start" or (operation == "exec" and state) else operation,
        cache_state="" if operation == "exec" or state == "start" else state,
    )


def _of_graph(head: _Head, event: str, found: re.Match[str]) -> Primitive | None:
    """Read a kernel that is neither a primitive nor a partition; its tensors are printed as a partition's."""
    engine, name, _, attributes, inputs, outputs, time = found.groups(default="")
    duration = nanoseconds(time, MILLISECONDS)
    if duration is None or event != "exec":
        return None
    tensors = [
        f"{way}{index}_{tensor}"
        for way, group in (("in", inputs), ("out", outputs))
        for index, tensor in enumerate(filter(None, group.split(";")))
    ]
    return Primitive(
        **head.common,
        duration_ns=duration,
        signature=PrimitiveSignature(
            tracer="onednn",
            key=f"{head.key},{event},{found[0][: found.start(7) - 1]}",
            format=head.format,
            component=head.component,
            engine=engine,
            primitive=name,
            memory_descriptors=" ".join(tensors),
            auxiliary=attributes.replace(";", " "),
            problem=(outputs.partition(";")[0].split(":") + [""] * 5)[4],
        ),
    )


def _fitted(form: dict[str, re.Pattern[str]], fields: list[str]) -> dict[str, str] | None:
    """Return the fields by name, with the time at their end; None if they do not fit."""

    def fits(fields: list[str]) -> bool:
        if nanoseconds(fields[-1], MILLISECONDS) is None:
            return False
        return all(map(re.Pattern.fullmatch, form.values(), fields))

    whole = rejoined(fields, len(form) + 1, fits)
    return None if whole is None else dict(zip((*form, "time"), whole, strict=True))


def _signature(head: _Head, event: str, fields: dict[str, str]) -> PrimitiveSignature:
    return PrimitiveSignature(
        tracer="onednn",
        key=",".join([head.key, event, *fields.values()]),
        format=head.format,
        component=head.component,
        **fields,
    )


def _partition(head: _Head, event: str, rest: list[str]) -> GraphPartition | None:
    """Read a partition; since 3.13 the eighth field is the scratchpad."""
    place, scratchpad = next((item for item in enumerate(rest) if item[1].startswith("scratchpad:")), (0, ""))
    found = _fitted(_PARTITION, [*rest[:place], *rest[place + 1 :]] if scratchpad else rest)
    if found is None:
        return None
    operation, _, state = event.partition(":")
    *fields, time = found.values()
    if scratchpad:
        fields.insert(7, scratchpad)
    found |= {
        "fpmath_mode": found["fpmath_mode"].removeprefix("fpm:"),
        "scratchpad": scratchpad.removeprefix("scratchpad:"),
    }
    operations = tuple(found.pop("operations").split(";"))
    del found["time"]
    return GraphPartition(
        **head.common,
        duration_ns=nanoseconds(time, MILLISECONDS),
        event=operation,
        cache_state=state,
        signature=PartitionSignature(
            tracer="onednn",
            key=",".join([head.key, event, *fields]),
            format=head.format,
            operations=operations,
            **found,
        ),
    )

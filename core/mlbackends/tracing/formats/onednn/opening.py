"""How a line of oneDNN begins: marker, format, time stamp, component.

    onednn_verbose,v1,1795258901078.068115,primitive,exec,...
    onednn_verbose,1795258934729,712891,exec,...            a locale with decimal commas
    dnnl_verbose,exec,...                                   oneDNN 1.1 to 2.4
    mkldnn_verbose,exec,...                                 MKL-DNN 0.x, oneDNN 1.0

The `template:` line of a log gives the order of fields but lies about the stamp, which stands before
the component. Source: oneDNN 3.13, src/common/verbose.hpp, VFORMAT; the older tags likewise.
"""

from typing import NamedTuple

MARKERS = ("onednn_verbose", "dnnl_verbose", "mkldnn_verbose", "onednn_graph_verbose")
COMPONENTS = frozenset({"primitive", "graph", "common", "ukernel"})


class Opening(NamedTuple):
    """The head of a line, and the fields behind it. key: the head without the stamp."""

    key: str
    format: str
    start_ns: int | None
    component: str
    fields: list[str]


def opened(line: str) -> Opening | None:
    """Take the head off a line; None if it has no marker or nothing behind it."""
    marker, *fields = line.split(",")
    if marker not in MARKERS or not fields:
        return None
    form = fields.pop(0) if fields[0][:1] == "v" and fields[0][1:].isdecimal() else ""
    start = None
    if fields and fields[0][:1].isdecimal():
        start, fields = _stamp(fields)
    component = fields.pop(0) if fields and fields[0] in COMPONENTS else ""
    if not fields:
        return None
    head = ",".join(part for part in (marker, form, component) if part)
    return Opening(head, form, start, component, fields)


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

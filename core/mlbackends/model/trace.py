"""The lines of MKL and oneDNN as records.

`str(record)` is the text that the record came from: for a line of a library, the line as the
library printed it, without line ending, launcher's prefix or capture's stamp; for Text, the
program's own output with its line ending. Bytes that are not UTF-8 are kept (surrogateescape).

What repeats from call to call (names, sizes, formats) is in a `signature` that all records of the same
call share; what follows from a signature (operation, shape, element types, work, traffic) is `derived`
from it once, when first needed, by the tracer that read the line. Records other than calls have the
empty values.

Units: nanoseconds, bytes, floating-point operations. `None` is "not known".
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar

from msgspec import Struct, field, structs

from mlbackends.model.signature import (
    NOTHING,
    Derived,
    PartitionSignature,
    PrimitiveSignature,
    RoutineSignature,
    Signature,
)


def _computed(function: Callable[[Any], Any]) -> Any:
    """Return a property, for an attribute that is declared by its type alone."""
    return property(function)


class Record(Struct, frozen=True, kw_only=True, tag_field="kind", tag=str.lower):
    """What all kinds have.

    tracer: "mkl" or "onednn"; "" for the program's own text.
    line_number: in its file, from 1; 0 without a file.
    prefix: what a launcher put before the line, such as "[rank0]: "; as it was.
    source: where it came from: the rank or service that the prefix names ("rank0"), the log where several
        are read ("node0.log"), or both ("node0.log/rank0").
    process, thread: the operating system's numbers where the capture knew them; else thread is
        MKL's own number of the OpenMP thread. start_ns, clock: when it began, and since what:
        "epoch" or "monotonic". duration_ns: a fraction, since oneDNN prints six digits of a millisecond.
    operation to workspace_query: as in `Derived`; empty for records other than calls. key: what is the same
        for equal calls, "" for others. executed: it is work done, not something created, compiled or
        refused. nested: its time is also inside that of another record. cache: how a creation found
        oneDNN's cache: "cache_hit", "cache_miss", ...; else "".
    """

    tracer: str = ""
    raw: str = ""
    line_number: int = 0
    prefix: str = ""
    source: str = ""
    process: int | None = None
    thread: int | None = None
    start_ns: int | None = None
    duration_ns: float | None = None
    clock: str = ""
    derived: ClassVar[Derived] = NOTHING
    key: ClassVar[str] = ""
    executed: ClassVar[bool] = False
    nested: ClassVar[bool] = False
    cache: ClassVar[str] = ""
    operation: ClassVar[str] = _computed(attrgetter("derived.operation"))
    shape: ClassVar[str] = _computed(attrgetter("derived.shape"))
    dtype: ClassVar[str] = _computed(attrgetter("derived.dtype"))
    implementation: ClassVar[str] = _computed(attrgetter("derived.implementation"))
    isa: ClassVar[str] = _computed(attrgetter("derived.isa"))
    flops: ClassVar[float | None] = _computed(attrgetter("derived.flops"))
    bytes: ClassVar[float | None] = _computed(attrgetter("derived.bytes"))
    slow_path: ClassVar[str] = _computed(attrgetter("derived.slow_path"))
    workspace_query: ClassVar[bool] = _computed(attrgetter("derived.workspace_query"))

    def __str__(self) -> str:
        return self.raw

    @property
    def kind(self) -> str:
        """The kind's name in lower case: "primitive", "mklcall", ..."""
        return type(self).__name__.lower()

    @property
    def gflops(self) -> float | None:
        """Billions of floating-point operations a second; None without work or time, or for a creation."""
        return self._rate(self.flops)

    @property
    def gigabytes_per_second(self) -> float | None:
        """Billions of bytes a second, by the least traffic; None without traffic or time."""
        return self._rate(self.bytes)

    @property
    def counted(self) -> bool:
        """Whether its time belongs in a total, so that nothing is counted twice."""
        return self.executed and not self.nested and not self.workspace_query

    def _rate(self, amount: float | None) -> float | None:
        if amount is None or not self.duration_ns or not self.executed or self.workspace_query:
            return None
        return amount / self.duration_ns


class Header(Record, frozen=True, kw_only=True):
    """The line that names the library and its version.

    version: "3.6.2", "2026.2". facts: the rest by name; for MKL product, build, architecture, processor,
    system, frequency (GHz, as printed), interface, threading; for oneDNN commit and format.
    """

    version: str = ""
    facts: dict[str, str] = field(default_factory=dict)


class Call(Record, frozen=True, kw_only=True):
    """What the kinds of calls have.

    event: "exec"; "exec:external" (a part of an exec that another library did); "create";
    "create_nested" (inside another creation); "compile" (of a graph's partition); "create:start" and
    "exec:start", which announce one that has its own line.
    cache_state: as printed, "" for an exec.
    """

    signature: Signature
    event: str = "exec"
    cache_state: str = ""

    derived: ClassVar[Derived] = _computed(attrgetter("signature.derived"))
    key: ClassVar[str] = _computed(attrgetter("signature.key"))
    cache: ClassVar[str] = _computed(attrgetter("cache_state"))
    executed: ClassVar[bool] = _computed(
        lambda self: self.event.startswith("exec") and self.event != "exec:start"
    )
    nested: ClassVar[bool] = _computed(
        lambda self: self.event in {"create_nested", "exec:external"} or self.event.endswith(":start")
    )
    counted: ClassVar[bool] = _computed(  # many ask for it: executed, not nested and no query
        lambda self: (
            self.event.startswith("exec")
            and self.event not in {"exec:external", "exec:start"}
            and not self.derived.workspace_query
        )
    )


class MklCall(Call, frozen=True, kw_only=True):
    """A call of MKL. Lines of GPUs may have no time, and transforms of 2019 too coarse a one."""

    signature: RoutineSignature


class Primitive(Call, frozen=True, kw_only=True):
    """A primitive of oneDNN that ran or was made."""

    signature: PrimitiveSignature


class GraphPartition(Call, frozen=True, kw_only=True):
    """A part of a graph that ran or was compiled.

    The primitives inside print their own lines before it: only their time is counted.
    """

    signature: PartitionSignature

    counted: ClassVar[bool] = False


class Ukernel(Call, frozen=True, kw_only=True):
    """A micro-kernel that the program called itself."""

    signature: PrimitiveSignature


class Dispatch(Record, frozen=True, kw_only=True):
    """Why oneDNN did not take an implementation, or, for graphs, how a pattern was tried.

    origin: the primitive or the part that refuses. refused: the implementation's and the problem's
    fields where the line has them. reason: as printed. place: FILE:LINE in oneDNN's source, "" if not known.
    """

    component: str = ""
    origin: str = ""
    reason: str = ""
    place: str = ""
    refused: PrimitiveSignature | None = None

    derived: ClassVar[Derived] = _computed(
        lambda self: NOTHING if self.refused is None else self.refused.derived
    )
    operation: ClassVar[str] = _computed(lambda self: self.refused.primitive if self.refused else self.origin)


class Check(Record, frozen=True, kw_only=True):
    """A complaint about arguments; event: "create:check", "exec:check", ...; the rest as in Dispatch."""

    component: str = ""
    event: str = ""
    origin: str = ""
    reason: str = ""
    place: str = ""


class Message(Record, frozen=True, kw_only=True):
    """An error, a warning or a remark for the library's authors.

    level: "error", "warning" or "debug". origin: the part that prints it, "" if not known. place: as in
    Dispatch.
    """

    component: str = ""
    level: str = ""
    origin: str = ""
    text: str = ""
    place: str = ""


class Info(Record, frozen=True, kw_only=True):
    """A line in which a library describes itself or the machine.

    topic: "cpu", "gpu", "graph", "template", "platform", ... values: what reads as "name:value".
    """

    component: str = ""
    topic: str = ""
    text: str = ""
    values: dict[str, str] = field(default_factory=dict)


class Text(Record, frozen=True, kw_only=True):
    """The program's own output, with its line ending where it had one."""


class Malformed(Record, frozen=True, kw_only=True):
    """A line that begins as a library's and does not go on as one: torn, or of a version not known here.

    reason: what was seen and what was expected.
    """

    reason: str = ""


#: Every kind; as JSON they are distinguished by "kind".
AnyRecord = (
    Header
    | MklCall
    | Primitive
    | GraphPartition
    | Ukernel
    | Dispatch
    | Check
    | Message
    | Info
    | Text
    | Malformed
)


def as_row(record: Record) -> dict[str, Any]:
    """Return a record as one flat row: its own fields, its signature's, and what is derived of it.

    The names are the records' own; where two are the same, what is derived counts.
    """
    row: dict[str, Any] = {"kind": record.kind}
    for name in record.__struct_fields__:
        value = getattr(record, name)
        row |= structs.asdict(value) if isinstance(value, Signature) else {name: value}
    row |= structs.asdict(record.derived)
    for name in ("operation", "gflops", "gigabytes_per_second", "executed", "nested", "counted"):
        row[name] = getattr(record, name)
    return row

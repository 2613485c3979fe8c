"""What repeats from one call of a library to the next, and what can be derived from it alone.

Units: bytes, floating-point operations. `None` is "not known".
"""

from functools import cached_property

from msgspec import Struct, field

from mlbackends.base.registry import load


class Derived(Struct, frozen=True, kw_only=True):
    """What can be derived of a call from its signature alone.

    operation: what was computed, in the library's own word: "matmul", "convolution", "SGEMM".
    shape: its sizes: "128x256:256x64" as oneDNN prints them, "m512n512k512" for MKL.
    dtype: the element types: "f32"; those of source, weights and destination where they differ: "u8:s8:f32".
    implementation: the kernel's name, "" where the library does not print it (MKL).
    isa: the instruction set in that name: "avx512_core_bf16"; "" where there is none.
    flops, bytes: the work and the least memory traffic of one call; None where sizes are not known.
    slow_path: the word of the implementation's name that gives a slow one away ("ref"); else "".
    workspace_query: the call only queried how much memory it needs.
    arguments: the values by their names, as printed; a pointer reads "0x*".
    unknown: the names of values that cannot be true, such as strides that were never set.
    """

    operation: str = ""
    shape: str = ""
    dtype: str = ""
    implementation: str = ""
    isa: str = ""
    flops: float | None = None
    bytes: float | None = None
    slow_path: str = ""
    workspace_query: bool = False
    arguments: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


NOTHING = Derived()


class Signature(Struct, frozen=True, dict=True, kw_only=True):
    """All of a call but what changes from one to the next: times, threads, addresses.

    key: the line without its times, addresses as "0x*": equal where the calls are.
    """

    tracer: str
    key: str

    @cached_property
    def derived(self) -> Derived:
        """What the tracer makes of it, worked out once."""
        found: Derived = load("mlbackends.tracing.formats", self.tracer).derive(self)
        return found


class PrimitiveSignature(Signature, frozen=True, dict=True, kw_only=True):
    """The fields of a primitive, as oneDNN printed them; "" where the version does not print it.

    format: "v1" from 3.6 on, else "". component: "primitive", "graph", "ukernel" from 3.3 on.
    memory_descriptors, attributes, auxiliary: separated by blanks, each "name:value".
    """

    format: str = ""
    component: str = ""
    engine: str = ""
    primitive: str = ""
    implementation: str = ""
    propagation: str = ""
    memory_descriptors: str = ""
    attributes: str = ""
    auxiliary: str = ""
    problem: str = ""


class PartitionSignature(Signature, frozen=True, dict=True, kw_only=True):
    """The fields of a compiled part of a graph, as oneDNN printed them.

    operations: the names that the program gave to what was fused. scratchpad: as printed, "" if not.
    """

    format: str = ""
    engine: str = ""
    partition: str = ""
    partition_kind: str = ""
    operations: tuple[str, ...] = ()
    data_formats: str = ""
    logical_tensors: str = ""
    fpmath_mode: str = ""
    scratchpad: str = ""
    implementation: str = ""
    backend: str = ""


class RoutineSignature(Signature, frozen=True, dict=True, kw_only=True):
    """A routine of MKL, and the state that it printed.

    routine: as printed: "SGEMM", "MKL_DOMATCOPY", "FFT". values: the arguments, as printed, with
    pointers as "0x*". state: the fields behind the time, by name: CNR, Dyn, FastMM, TID, NThr, BLAS, WDiv.
    """

    routine: str
    values: tuple[str, ...] = ()
    state: dict[str, str] = field(default_factory=dict)

"""oneDNN, and MKL-DNN before it: one line for each primitive that runs or is made.

Prints:   to the program's standard output.
Needs:    variables that are read once, before the first use.
Source:   oneDNN 3.13, doc/performance/verbose.md; the versions back to 0.x as wheels printed them.
"""

from mlbackends.model.signature import (
    Derived,
    PartitionSignature,
    PrimitiveSignature,
    Signature,
)
from mlbackends.model.trace import AnyRecord
from mlbackends.tracing.formats.onednn import glued, grammar, keys, opening
from mlbackends.tracing.formats.onednn.descriptors import descriptors
from mlbackends.tracing.formats.onednn.names import dtype, isa, slow_path
from mlbackends.tracing.formats.onednn.work import work

MARKERS = tuple(f"{marker},".encode() for marker in opening.MARKERS)

_LEVELS = {"exec": "1", "create": "2", "dispatch": "2,dispatch", "all": "2,all"}


def environment(
    *, level: str = "create", timestamps: bool = True, components: str = "", file: str = ""
) -> dict[str, str]:
    """Return what to set so that any version prints its lines.

    level: "exec", "create" (and exec), "dispatch" (and why not), "all" (and checks and warnings).
    components: a regular expression over components, from 3.3 on. file: not used; oneDNN has no choice.
    Up to 3.1 only the number that the value begins with is read, and up to 2.4 nothing may follow it.
    """
    del file
    words = _LEVELS[level]
    number = words[:1]
    stamp = "1" if timestamps else "0"
    return {
        "ONEDNN_VERBOSE": f"{words},filter={components}" if components else words,
        "DNNL_VERBOSE": number,
        "MKLDNN_VERBOSE": number,
        "ONEDNN_VERBOSE_TIMESTAMP": stamp,
        "DNNL_VERBOSE_TIMESTAMP": stamp,
    }


def parse(line: str) -> AnyRecord | None:
    """Return the record of a whole line, from its marker on; None if it does not keep to the grammar."""
    return grammar.parse(line)


split = glued.split
Shortener = keys.Shortener


def derive(signature: Signature) -> Derived:
    """Tell operation, sizes, types, instruction set and work of a call."""
    if isinstance(signature, PrimitiveSignature):
        return _primitive(signature)
    if isinstance(signature, PartitionSignature):
        return _partition(signature)
    return Derived()


def _primitive(call: PrimitiveSignature) -> Derived:
    flops, traffic = work(call)
    return Derived(
        operation=call.primitive,
        shape=call.problem,
        dtype=dtype(descriptors(call.memory_descriptors)),
        implementation=call.implementation,
        isa=isa(call.implementation),
        flops=flops,
        bytes=traffic,
        slow_path=slow_path(call.primitive, call.implementation),
        arguments=_arguments(f"{call.auxiliary} {call.attributes}"),
    )


def _partition(call: PartitionSignature) -> Derived:
    tensors = descriptors(call.logical_tensors)
    return Derived(
        operation=call.partition_kind,
        shape=":".join(each.shape for each in tensors if each.name.startswith("in")),
        dtype=dtype(tensors),
        implementation=call.implementation,
        arguments={"fpmath": call.fpmath_mode, "operations": ";".join(call.operations)},
    )


def _arguments(text: str) -> dict[str, str]:
    """Return the words of the form "name:value"."""
    named = (word.partition(":") for word in text.split())
    return {name: value for name, colon, value in named if colon}

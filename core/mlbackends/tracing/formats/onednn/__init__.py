"""oneDNN, and MKL-DNN before it: one line for each primitive that runs or is made.

Prints:   to the program's standard output.
Needs:    variables that are read once, before the first use.
Source:   oneDNN 3.13, doc/performance/verbose.md; the versions back to 0.x as wheels printed them.
"""

import re
from functools import lru_cache

from msgspec import structs

from mlbackends.model.signature import Derived, PartitionSignature, PrimitiveSignature, Signature
from mlbackends.tracing.formats.onednn import grammar
from mlbackends.tracing.formats.onednn.descriptors import MemoryDescriptor, descriptors
from mlbackends.tracing.formats.onednn.work import role_of, work

MARKERS = tuple(f"{marker},".encode() for marker in grammar.MARKERS)
parse, split, cut = grammar.parse, grammar.split, grammar.cut

_LEVELS = {"exec": "1", "create": "2", "dispatch": "2,dispatch", "all": "2,all"}
_ISA = re.compile(r"(?:sse|avx|amx|sve|rvv|rv64|xe|gen|neon|asimd|vsx|zvfh|lasx|lsx)\d*(?:_[a-z0-9]+)*")


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


def derive(signature: Signature) -> Derived:
    """Return operation, sizes, types, instruction set and work of a call."""
    if isinstance(signature, PrimitiveSignature):
        flops, traffic = work(signature)
        unsized = _unsized(
            signature.primitive,
            signature.implementation,
            signature.propagation,
            signature.memory_descriptors,
            f"{signature.auxiliary} {signature.attributes}",
        )
        return structs.replace(unsized, shape=signature.problem, flops=flops, bytes=traffic)
    if isinstance(signature, PartitionSignature):
        tensors = descriptors(signature.logical_tensors)
        operations = ";".join(signature.operations)
        return Derived(
            operation=signature.partition_kind,
            shape=":".join(tensor.shape for tensor in tensors if tensor.name.startswith("in")),
            dtype=dtype(tensors),
            implementation=signature.implementation,
            arguments={"fpmath": signature.fpmath_mode, "operations": operations},
        )
    return Derived()


@lru_cache(maxsize=1024)
def _unsized(
    primitive: str, implementation: str, propagation: str, memory_descriptors: str, words: str
) -> Derived:
    """Return what is derived of a primitive but for its sizes: programs call one with many."""
    pairs = (word.partition(":") for word in words.split())
    arguments = {name: value for name, colon, value in pairs if colon}
    if primitive == "rnn" and propagation.startswith("backward"):
        arguments["passes"] = "2"  # of the data and of the weights, in one call
    return Derived(
        operation=primitive,
        dtype=dtype(descriptors(memory_descriptors)),
        implementation=implementation,
        isa=isa(implementation),
        slow_path=slow_path(primitive, implementation),
        arguments=arguments,
    )


@lru_cache(maxsize=1024)
def isa(implementation: str) -> str:
    """Return the instruction set that an implementation's name holds, the last if several; "" if none.

    Names of implementations change from version to version (`brg:` became `brg_matmul:`, `x64:gemm:jit`
    became `jit_uni_ncsp:conv+ref:any`), so they are read by their words, not as a whole.
    """
    found = [part for part in re.split(r"[:+]", implementation) if _ISA.fullmatch(part)]
    return found[-1] if found else ""


@lru_cache(maxsize=1024)
def slow_path(primitive: str, implementation: str) -> str:
    """Return the word that gives a slow implementation away, "ref inside" for a part of one, "" if none.

    "simple" is how oneDNN calls its plain copies, too, which are not slow at joining tensors.
    """
    for part in implementation.split("+"):
        words = re.split(r"[:_]", part)
        for word in ("ref", "simple", "naive"):
            if word in words and not (word == "simple" and primitive in {"concat", "sum"}):
                return f"{word} inside" if "+" in implementation else word
    return ""


def dtype(tensors: tuple[MemoryDescriptor, ...]) -> str:
    """Return the element types of source, weights and destination: one if all have the same."""
    roles: dict[str, str] = {}
    for tensor in tensors:
        if tensor.present and tensor.dtype:
            roles.setdefault(role_of(tensor.name.removeprefix("diff_")), tensor.dtype)
    found = [roles[role] for role in ("src", "wei", "dst") if role in roles]
    if not found:
        found = [tensor.dtype for tensor in tensors if tensor.present and tensor.dtype]
    return found[0] if len(set(found)) == 1 else ":".join(found)

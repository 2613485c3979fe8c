"""What the names in oneDNN's lines give away: element types, instruction set, slow paths.

Names of implementations change from version to version (`brg:` became `brg_matmul:`, `x64:gemm:jit`
became `jit_uni_ncsp:conv+ref:any`), so they are read by their words, not as a whole.
"""

import re

from mlbackends.tracing.formats.onednn.descriptors import MemoryDescriptor

_ISA = re.compile(
    r"(?:sse|avx|amx|sve|rvv|rv64|xe|gen|neon|asimd|vsx|zvfh|lasx|lsx)\d*(?:_[a-z0-9]+)*"
)
_SPLIT = re.compile(r"[:+]")
_SLOW = ("ref", "simple", "naive")
_COPIES = frozenset({"concat", "sum"})


def isa(implementation: str) -> str:
    """Return the instruction set that an implementation's name holds, the last if several; "" if none."""
    found = [part for part in _SPLIT.split(implementation) if _ISA.fullmatch(part)]
    return found[-1] if found else ""


def slow_path(primitive: str, implementation: str) -> str:
    """Return the word that gives a slow implementation away, "ref inside" for a part of one, "" if none.

    "simple" is how oneDNN calls its plain copies, too, which are not slow at joining tensors.
    """
    for part in implementation.split("+"):
        words = re.split(r"[:_]", part)
        for word in _SLOW:
            if word in words and not (word == "simple" and primitive in _COPIES):
                return f"{word} inside" if "+" in implementation else word
    return ""


def dtype(tensors: tuple[MemoryDescriptor, ...]) -> str:
    """Return the element types of source, weights and destination: one if all have the same."""
    roles: dict[str, str] = {}
    for each in tensors:
        name = each.name.removeprefix("diff_")
        role = next((part for part in ("src", "wei", "dst") if name.startswith(part)), "")
        if not role and name.startswith("data"):
            role = "src"
        if not role and name.startswith(("in", "out")):
            role = "src" if name.startswith("in") else "dst"
        if role and each.present and each.dtype:
            roles.setdefault(role, each.dtype)
    found = [roles[role] for role in ("src", "wei", "dst") if role in roles]
    if not found:
        found = [each.dtype for each in tensors if each.present and each.dtype]
    return found[0] if len(set(found)) == 1 else ":".join(found)

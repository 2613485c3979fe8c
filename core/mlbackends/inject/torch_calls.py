"""How each switch is written in torch, and where it is read back.

Source: torch 2.13, observed.
"""

from mlbackends.switches.kinds import Permutation, Reduction
from mlbackends.switches.table import FLAGS, Flag

_BACKENDS = "torch.backends."
#: Where bare assignment does something else than it says: it writes the generic entry (mkldnn), or
#: shadows the module's state (opt_einsum). The functions and their arguments do it right.
_BY_FUNCTION = {
    "mkldnn.fp32_precision": ("mkldnn.set_flags", "_fp32_precision"),
    "opt_einsum.enabled": ("opt_einsum.set_flags", "_enabled"),
    "opt_einsum.strategy": ("opt_einsum.set_flags", "_strategy"),
}
#: What opt_einsum.set_flags takes; the others can only be assigned.
_STRATEGIES = ("auto", "greedy", "optimal")
_CAPABILITY = f"{_BACKENDS}cpu.get_cpu_capability"


def write_of(flag: Flag, value: object) -> tuple[str, str, str]:
    """Return the attribute to assign to, or "" and the function to call and its argument's name or ""."""
    if flag.torch_set:
        return "", flag.torch_set, ""
    function, keyword = _BY_FUNCTION.get(flag.name, ("", ""))
    if function and (keyword != "_strategy" or value in _STRATEGIES):
        return "", f"{_BACKENDS}{function}", keyword
    return f"{_BACKENDS}{flag.name}", "", ""


def argument_of(flag: Flag, value: object) -> object:
    """Return the value as torch takes it: an order as numbers, a bool where no second one is needed."""
    if isinstance(flag.kind, Reduction) and isinstance(value, tuple):
        return value[0] if value[1] else list(value)
    return list(value) if isinstance(value, tuple) else value


def reads_of(flag: Flag, value: object) -> tuple[tuple[str, object], ...]:
    """Return what to read back and the value to find there, () where torch cannot tell.

    "none" stands for what an entry inherits, so anything may be found there.
    """
    if flag.name == "cpu.capability":
        word = str(value)
        return ((_CAPABILITY, {"zvector": "Z VECTOR"}.get(word, word.upper())),)
    # The workspace is told by a call that starts CUDA, after which the program could not fork.
    if flag.reached == "variable" or "workspace" in flag.name:
        return ()
    path = flag.torch_get or f"{_BACKENDS}{flag.name}"
    if isinstance(flag.kind, Reduction) and isinstance(value, tuple):
        split = f"{flag.name}_split_k"
        known = ((f"{_BACKENDS}{split}", value[1]),) if split in FLAGS and not value[1] else ()
        return ((path, value[0]), *known)
    if isinstance(flag.kind, Permutation) and isinstance(value, tuple):
        return ((path, list(value)),)
    return ((path, None if value == "none" else value),)

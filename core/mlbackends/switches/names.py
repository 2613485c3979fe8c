"""The names of switches and of groups of them, and what is said of a name that is neither."""

from mlbackends.model.errors import GroupName, UnknownName, nearest, shown
from mlbackends.switches.table import FLAGS


def groups() -> tuple[str, ...]:
    """Return every name below which there are switches: cuda, cuda.matmul, cudnn, ..."""
    found: dict[str, None] = {}
    for name in FLAGS:
        parts = name.split(".")
        found.update(dict.fromkeys(".".join(parts[:end]) for end in range(1, len(parts))))
    return tuple(found)


def members(group: str) -> tuple[str, ...]:
    """Return the switches below a group's name, () where it is none."""
    return tuple(name for name in FLAGS if name.startswith(f"{group}."))


def unknown(name: str) -> UnknownName:
    """Return the exception for a name that is no switch: the members of a group, else the nearest."""
    below = members(name)
    if below:
        return GroupName(name, below, f"backends flags list {name}")
    return UnknownName("switch", name, tuple(FLAGS), "backends flags list")


def unknown_variable(name: str, known: "tuple[str, ...]") -> str:
    """Return what is to be said of a variable that begins as ours do, and that nothing reads."""
    near = nearest(name, known)
    ending = f"did you mean {near[0]}?" if near else "`backends flags list` has the switches."
    return f"Ignoring the variable {shown(name)[1:-1]}: no switch has it; {ending}"

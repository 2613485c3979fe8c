"""The names of switches and of groups of them, and what is said of a name that is neither."""

from mlbackends.flag_table import FLAGS
from mlbackends.model.errors import GroupName, UnknownName, nearest, shown


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


def unknown_variables(names: "tuple[str, ...]") -> "list[str]":
    """Return a sentence for each of these variables that begins as ours do, and that nothing reads."""
    known = (*(each for flag in FLAGS.values() for each in flag.variables), *_OTHERS)
    ours = tuple(each for each in known if each.startswith(PREFIX))
    sentences = []
    for name in names:
        if not name.startswith(PREFIX) or name in ours or name.startswith(_TRACER):
            continue
        near = nearest(name, ours)
        ending = f"did you mean {near[0]}?" if near else "`backends flags list` has the switches"
        sentences.append(f"Ignoring the variable {shown(name)[1:-1]}: no switch has it; {ending}")
    return sentences


PREFIX = "MLBACKENDS_"
#: What is ours and no switch's; the tracer and the build have several.
_OTHERS = ("MLBACKENDS_FLAGS", "MLBACKENDS_CARRIED", "MLBACKENDS_NATIVE", "MLBACKENDS_TORCH_PYTHON")
_TRACER = "MLBACKENDS_TRACE_"

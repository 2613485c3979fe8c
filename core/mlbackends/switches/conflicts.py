"""Switches that cannot hold together: after the later one, the earlier no longer reads as it was set."""

from collections.abc import Mapping
from itertools import combinations

from mlbackends.model.errors import BadInput
from mlbackends.switches.cells import put, reading, untouched
from mlbackends.switches.kinds import Reduction
from mlbackends.switches.table import FLAGS

ADVICE = "set one of them alone"


def refuse_contradictions(values: Mapping[str, object]) -> None:
    """Raise BadInput that names two switches which contradict each other; None is no value."""
    names = clashing(values)
    if names:
        raise BadInput(contradiction(values, names), ADVICE)


def clashing(values: Mapping[str, object]) -> tuple[str, ...]:
    """Return two switches which contradict each other, () if none do; None is no value.

    Only one where it takes more than one other to undo it.
    """
    given = {name: value for name, value in values.items() if value is not None}
    found = lost(given)
    if not found:
        return ()
    pairs = combinations(given, 2)
    return next((pair for pair in pairs if lost({each: given[each] for each in pair})), (found,))


def contradiction(values: Mapping[str, object], names: tuple[str, ...]) -> str:
    """Return what is to be said of `clashing` switches."""
    shown = " and ".join(f"{name}={FLAGS[name].kind.written(values[name])}" for name in names)
    if len(names) == 1:
        return f"{shown} does not hold beside the other switches that are set"
    return f"{shown} contradict each other"


def contradict(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Tell whether two sets of switches cannot hold together."""
    return bool(lost({**one, **other}))


def lost(values: Mapping[str, object]) -> str:
    """Return the first switch that does not read as it was set where all of them are; "" if none."""
    if values.get("opt_einsum.enabled") is False and "opt_einsum.strategy" in values:
        return "opt_einsum.strategy"
    cells = untouched()
    ordered = [flag for name, flag in FLAGS.items() if name in values]
    for flag in ordered:
        put(cells, flag, values[flag.name], "set")
    for flag in ordered:
        if flag.name == "mkldnn.allow_tf32":  # our own store has no cell for it
            continue
        value = values[flag.name]
        wanted = (
            value[0] if isinstance(flag.kind, Reduction) and isinstance(value, tuple) else value
        )
        try:
            found = reading(cells, flag)
        except RuntimeError:
            return flag.name
        if wanted not in (found, "none"):
            return flag.name
    return ""

"""Switches that cannot hold together: after the later one, the earlier no longer reads as it was set."""

from collections.abc import Mapping
from itertools import combinations

from mlbackends.flag_cells import put, reading, untouched
from mlbackends.flag_kinds import Reduction
from mlbackends.flag_table import FLAGS
from mlbackends.model.errors import BadInput


def refuse_contradictions(values: Mapping[str, object]) -> None:
    """Raise BadInput that names two switches which contradict each other."""
    found = lost(values)
    if not found:
        return
    for one, other in combinations(values, 2):
        pair = {one: values[one], other: values[other]}
        if lost(pair):
            raise BadInput(
                f"{_shown(one, values[one])} and {_shown(other, values[other])} contradict each other",
                "set one of them alone",
            )
    raise BadInput(
        f"{_shown(found, values[found])} does not hold beside the other switches that are set"
    )


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


def _shown(name: str, value: object) -> str:
    return f"{name}={FLAGS[name].kind.written(value)}"

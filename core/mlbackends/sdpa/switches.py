"""The kinds of attention backends, and the switches that allow and order them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from mlbackends.base.errors import nearest
from mlbackends.switches import store
from mlbackends.switches.dynamo import is_compiling


class SDPBackend(Enum):
    """The kinds of attention backends, with torch's numbers.

    Several backends may have the same kind: FLASH_ATTENTION is one kernel on the CPU and another on a GPU.
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self) -> int:
        return int(self.value)

    __index__ = __int__

    @classmethod
    def _missing_(cls, value: object) -> None:
        members = ", ".join(f"{member.name} {member.value}" for member in cls)
        if not isinstance(value, int):
            raise TypeError(f"SDPBackend takes a number, but got {type(value).__name__}: {members}")
        raise ValueError(f"SDPBackend has no {value}; it has {members}")


SWITCHES = {
    SDPBackend.FLASH_ATTENTION: "cuda.flash_sdp",
    SDPBackend.EFFICIENT_ATTENTION: "cuda.mem_efficient_sdp",
    SDPBackend.MATH: "cuda.math_sdp",
    SDPBackend.CUDNN_ATTENTION: "cuda.cudnn_sdp",
    SDPBackend.OVERRIDEABLE: "cuda.overrideable_sdp",
}
PRIORITY_ORDER = "cuda.sdp_priority_order"
_KINDS = {kind.value: kind for kind in SDPBackend}
#: The scopes in the code that torch's compiler is tracing, the innermost last: kinds, whether in this order.
traced_scopes: list[tuple[list[int], bool]] = []


def as_backend(value: object) -> SDPBackend | None:
    """Return a kind, also for a member of torch's own SDPBackend; None for anything else.

    torch's member must have the same name and number as ours.
    """
    if isinstance(value, SDPBackend):
        return value
    torch: Any = sys.modules.get("torch")
    theirs = getattr(getattr(torch, "_C", None), "_SDPBackend", None)
    if not isinstance(theirs, type) or not isinstance(value, theirs):
        return None
    member: Any = value
    kind = SDPBackend.__members__.get(str(member.name))
    return kind if kind is not None and kind.value == int(member) else None


@contextmanager
def sdpa_kernel(
    backends: list[SDPBackend] | SDPBackend, set_priority: bool = False, *, avoid_known_wrong: bool = False
) -> Iterator[dict[object, object]]:
    """Allow only these kinds of attention backends inside the block; [] allows none.

    Members of torch's own SDPBackend are accepted too. set_priority: try the kinds in the order of the list,
    and the others after them. avoid_known_wrong: leave out the kinds that public reports name as wrong for
    some problems with the installed torch and cuDNN on this machine's GPU. On leaving, every switch and the
    whole order are restored. It also works as a decorator, and inside what torch.compile compiles, there for
    calls of ours; with backend="mlbackends" for those of torch's function too.

    Raises AssertionError for anything but an SDPBackend or a list, as torch does; TypeError or ValueError for
    a list with any other member, which torch treats as "none at all"; TypeError where set_priority is not a
    bool.
    """
    if not isinstance(set_priority, bool):
        raise TypeError(f"set_priority must be a bool, not {type(set_priority).__name__}")
    enabled = _kinds_of(backends)
    if avoid_known_wrong:
        from mlbackends.sdpa.avoiding import known_wrong_kinds

        wrong = known_wrong_kinds()
        enabled = [kind for kind in enabled if kind.name not in wrong]
    if is_compiling():  # a graph is being captured: the scope becomes part of it, nothing is switched now
        begin_in_graph(tuple([kind.name for kind in enabled]), set_priority)
        traced_scopes.append(([kind.value for kind in enabled], set_priority))
        try:
            yield {}
        finally:
            traced_scopes.pop()
            end_in_graph()
        return
    with store.restored(*SWITCHES.values(), PRIORITY_ORDER):
        values: dict[str, object] = {name: kind in enabled for kind, name in SWITCHES.items()}
        if set_priority:
            others = [kind for kind in priority_order() if kind not in enabled]
            values[PRIORITY_ORDER] = tuple(kind.value for kind in (*enabled, *others))
        store.write_all(values)
        yield {}


def begin_in_graph(names: tuple[str, ...], set_priority: bool) -> None:
    """Mark where a scope of these kinds begins in a graph; our torch.compile backend enters it there."""


def end_in_graph() -> None:
    """Mark where the innermost scope of a graph ends."""


def allowed(kind: SDPBackend) -> bool:
    """Return whether the switch of a kind is on."""
    return bool(store.read(SWITCHES[kind]))


def priority_order() -> tuple[SDPBackend, ...]:
    """Return the kinds in the order in which they are tried, as it was set."""
    order = store.read(PRIORITY_ORDER)
    assert isinstance(order, tuple)
    return tuple(map(_KINDS.__getitem__, order))


def _kinds_of(backends: object) -> list[SDPBackend]:
    """Return the kinds without repetition. Raises what `sdpa_kernel` raises."""
    single = as_backend(backends)
    if single is not None:
        backends = [single]
    if not isinstance(backends, list):
        raise AssertionError(  # noqa: TRY004  torch's type
            f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, but got"
            f" {type(backends).__name__}"
        )
    choices = f"choose from: {', '.join(str(kind) for kind in SWITCHES)}"
    kinds: dict[SDPBackend, None] = {}
    for entry in backends:
        kind = as_backend(entry)
        if kind is None:
            near = _nearest(entry)
            hint = f"did you mean {near}?" if near else choices
            raise TypeError(f"sdpa_kernel takes a list of SDPBackend, not {entry!r}; {hint}")
        if kind not in SWITCHES:
            raise ValueError(f"{kind} is not a backend; {choices}")
        kinds[kind] = None
    return list(kinds)


def _nearest(entry: object) -> SDPBackend | None:
    """Return the kind that a number or a word in the list most likely means."""
    if isinstance(entry, int) and not isinstance(entry, bool):
        return next((kind for kind in SWITCHES if kind.value == entry), None)
    if not isinstance(entry, str):
        return None
    word = entry.rpartition(".")[2].lower().replace("-", "_")
    names = {kind.name.lower(): kind for kind in SWITCHES}
    names |= {name.removesuffix("_attention"): kind for name, kind in names.items()}
    matches = nearest(word, tuple(names))
    return names[matches[0]] if matches else None

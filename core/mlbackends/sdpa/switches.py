"""The switches that say which kinds of attention backends may run, and in which order."""

from collections.abc import Iterator
from contextlib import contextmanager

from mlbackends.sdpa.sdp_backend import SDPBackend, as_backend
from mlbackends.switches import store
from mlbackends.switches.dynamo import is_compiling

SWITCHES = {
    SDPBackend.FLASH_ATTENTION: "cuda.flash_sdp",
    SDPBackend.EFFICIENT_ATTENTION: "cuda.mem_efficient_sdp",
    SDPBackend.MATH: "cuda.math_sdp",
    SDPBackend.CUDNN_ATTENTION: "cuda.cudnn_sdp",
    SDPBackend.OVERRIDEABLE: "cuda.overrideable_sdp",
}
PRIORITY_ORDER = "cuda.sdp_priority_order"
_KINDS = {kind.value: kind for kind in SDPBackend}


@contextmanager
def sdpa_kernel(
    backends: list[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[dict[object, object]]:
    """Let only these kinds of backends compute attention inside the block; [] lets none.

    Members of torch's own SDPBackend are understood, too. set_priority: try them in the order of the
    list, and the others behind. On leaving, every switch and the whole order are as they were found.
    Also a decorator, and a scope of what torch.compile(backend="mlbackends") compiles.

    Raises AssertionError for anything but one SDPBackend or a list, as torch does, and TypeError or
    ValueError for a list that holds something else, which torch takes for "none at all",
    and TypeError for a set_priority that is no bool.
    """
    if not isinstance(set_priority, bool):
        raise TypeError(f"set_priority must be a bool, not {type(set_priority).__name__}")
    enabled = _kinds_of(backends)
    if is_compiling():  # a graph is captured: the scope is in it, and nothing is switched now
        begin_in_graph(tuple([kind.name for kind in enabled]), set_priority)
        try:
            yield {}
        finally:
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
    """Mark where a scope of these kinds begins in a graph; our backend of torch.compile enters it there."""


def end_in_graph() -> None:
    """Mark where the innermost scope of a graph ends."""


def allowed(kind: SDPBackend) -> bool:
    """Tell whether the switch of a kind is on."""
    return bool(store.read(SWITCHES[kind]))


def priority_order() -> tuple[SDPBackend, ...]:
    """Return the kinds in the order in which they are to be tried, as it was set."""
    order = store.read(PRIORITY_ORDER)
    assert isinstance(order, tuple)
    return tuple(map(_KINDS.__getitem__, order))


def _kinds_of(backends: object) -> list[SDPBackend]:
    """Return the kinds without repetition. Raises as sdpa_kernel says."""
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
            message = f"sdpa_kernel takes a list of SDPBackend, but it holds {entry!r}; {hint}"
            raise TypeError(message)
        if kind not in SWITCHES:
            raise ValueError(f"{kind} stands for no backend; {choices}")
        kinds[kind] = None
    return list(kinds)


def _nearest(entry: object) -> SDPBackend | None:
    """Return the kind that a number or a word in the list most likely stands for."""
    if isinstance(entry, int) and not isinstance(entry, bool):
        return next((kind for kind in SWITCHES if kind.value == entry), None)
    if not isinstance(entry, str):
        return None
    from mlbackends.base.errors import nearest

    word = entry.rpartition(".")[2].lower().replace("-", "_")
    names = {kind.name.lower(): kind for kind in SWITCHES}
    names |= {name.removesuffix("_attention"): kind for name, kind in names.items()}
    found = nearest(word, tuple(names))
    return names[found[0]] if found else None

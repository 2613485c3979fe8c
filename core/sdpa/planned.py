"""Calls like an earlier one: what was decided for that computes them at once, whatever their lengths.

The second call of a kind, for tensors of the same types with the same options while every switch is as it
was, has its backend prepare what they have in common; from the third one on that is used.
"""

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from mlbackends import flag_store
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Prepared
from mlbackends.sdpa.dispatch import lasting_choice

#: How many kinds of calls are kept, and of each how often it is prepared: to pass one over costs time, too.
_MOST_KINDS, _MOST_FORMS = 256, 8
_TYPES = frozenset({("numpy", "ndarray"), ("torch", "Tensor")})

_kept: dict[object, tuple[Prepared, ...]] = {}
"""By `kind_of_call`. Entries are replaced, never changed, so no lock is needed; a lost one is made again."""


def kind_of_call(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    dropout: Any,
    is_causal: Any,
    scale: Any,
    enable_gqa: Any,
    logsumexp: Any,
    seed: Any,
) -> object:
    """Return what calls have in common that are decided alike, None for one that is looked at by itself.

    It holds the state of the switches: ask before anything is decided by them.
    """
    tensors: Any = type(query)
    if (
        not _is_plain(tensors)
        or type(key) is not tensors
        or type(value) is not tensors
        or type(is_causal) is not bool
        or type(enable_gqa) is not bool
        or type(logsumexp) is not bool
        or type(dropout) not in (float, int)
        or not (scale is None or type(scale) is float)
        or not (seed is None or type(seed) is int)
        or not (mask is None or type(mask) is tensors)
    ):
        return None
    # The rest is left to what is prepared: this need only seldom be the same for what that tells apart.
    try:
        width = query.shape[-1]
    except (IndexError, RuntimeError):  # no dimension; a torch tensor that is nested
        return None
    elements = query.dtype, None if mask is None else mask.dtype
    options = dropout, is_causal, scale, enable_gqa, logsumexp
    return flag_store.state, tensors, width, elements, options


def attended(kind: object, query: Any, key: Any, value: Any, mask: Any, seed: int | None) -> Any:
    """Return the result of a call of a kind that is prepared, None where it is not."""
    for call in _kept.get(kind, ()):
        out = call(query, key, value, mask, seed)
        if out is not None:
            return out
    return None


def keep(
    kind: object,
    problem: AttentionProblem,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    out: Any,
    logsumexp: Any = None,
) -> None:
    """Note a call that was computed, and have its kind prepared if it is not the first.

    out, logsumexp: what was returned for it.
    """
    if problem.wants_gradient:
        return
    found = _kept.get(kind)
    if found is None:
        if len(_kept) >= _MOST_KINDS:
            _kept.clear()
        _kept[kind] = ()
    elif len(found) < _MOST_FORMS:
        if logsumexp is not None:
            problem = replace(problem, logsumexp=True)
        backend = lasting_choice(problem)
        tensors = query, key, value, mask, out, logsumexp
        call = backend.prepared(problem, *tensors) if backend else None
        _kept[kind] = (*found, call or _nothing)


def _nothing(query: Any, key: Any, value: Any, mask: Any, seed: int | None) -> None:
    """Stand for a call that cannot be prepared, so that this is not tried for ever."""
    del query, key, value, mask, seed


@lru_cache(maxsize=64)
def _is_plain(tensors: type) -> bool:
    """Tell whether it is a type whose shape and element type may be asked for without a second thought."""
    return (tensors.__module__, tensors.__qualname__) in _TYPES

"""Calls like an earlier one: what was decided for that computes them at once.

The second call of a kind, for tensors of the same types and sizes with the same options while every
switch is as it was, has its backend prepare the problem; from the third one on that is used. So a decode
step, whose key is longer each time, prepares nothing that is not used.
"""

from functools import lru_cache
from typing import Any

from mlbackends import flag_store
from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import Prepared
from mlbackends.sdpa.dispatch import lasting_choice

#: How many kinds of calls are kept, and how many layouts of each: to pass one over costs time, too.
_MOST_KINDS, _MOST_LAYOUTS = 256, 4
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
        or type(dropout) not in (float, int)
        or dropout
        or not (scale is None or type(scale) is float)
    ):
        return None
    if not (mask is None or type(mask) is tensors):
        return None
    # What is prepared compares the whole layout: this need only seldom be the same for two of them.
    try:
        sizes = query.shape, key.nbytes, value.nbytes, None if mask is None else mask.nbytes
    except RuntimeError:  # a torch tensor that is nested or sparse
        return None
    return (flag_store.state, tensors, query.dtype, *sizes, is_causal, scale, enable_gqa)


def attended(kind: object, query: Any, key: Any, value: Any, mask: Any) -> Any:
    """Return the result of a call of a kind that is prepared, None where it is not."""
    for call in _kept.get(kind, ()):
        out = call(query, key, value, mask)
        if out is not None:
            return out
    return None


def keep(
    kind: object, problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any, out: Any
) -> None:
    """Note a call that was computed, and have it prepared if it is not the first of its kind.

    out: what was returned for it.
    """
    specs = (problem.query, problem.key, problem.value, problem.mask)
    if any(spec is not None and spec.requires_grad for spec in specs):
        return
    found = _kept.get(kind)
    if found is None:
        if len(_kept) >= _MOST_KINDS:
            _kept.clear()
        _kept[kind] = ()
    elif len(found) < _MOST_LAYOUTS:
        backend = lasting_choice(problem)
        call = backend.prepared(problem, query, key, value, mask, out) if backend else None
        _kept[kind] = (*found, call or _nothing)


def _nothing(query: Any, key: Any, value: Any, mask: Any) -> None:
    """Stand for a call that cannot be prepared, so that this is not tried for ever."""
    del query, key, value, mask


@lru_cache(maxsize=64)
def _is_plain(tensors: type) -> bool:
    """Tell whether it is a type whose shape and element type may be asked for without a second thought."""
    return (tensors.__module__, tensors.__qualname__) in _TYPES

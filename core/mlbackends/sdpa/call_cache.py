"""The cache of prepared calls: what was decided for a call computes later ones of its kind.

Calls of a kind have tensors of the same types and the same options, and every switch is as it was; on a
CUDA device of the same sizes and strides, too. The second one has its backend prepare what they have in
common; from the third one on that is used.
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from mlbackends.sdpa.backend import Prepared
from mlbackends.sdpa.bias import CausalBias
from mlbackends.sdpa.request import Fields
from mlbackends.switches import store

#: How many kinds of calls are kept, and of each how often it is prepared: to pass one over costs time, too.
_MOST_KINDS, _MOST_FORMS = 256, 8
_TYPES = {
    ("numpy", "ndarray"): "numpy",
    ("torch", "Tensor"): "torch",
    ("mlbackends_kernels.cuda.device_array", "DeviceArray"): "cuda",
}

#: What calls have in common that are decided alike; the first part is the state of the switches.
Kind = tuple[Any, ...]

#: By `kind_of_call`. Entries are replaced, never changed, so no lock is needed; a lost one is made again.
_kept: dict[Kind, tuple[Prepared, ...]] = {}

#: Return what may compute calls of a kind: each returns None where it does not, and the next is tried.
prepared_calls = _kept.get


def kind_of_call(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    seed: Any,
    options: tuple[Any, ...],
    fields: Fields | None = None,
) -> Kind | None:
    """Return the kind of a call, None for one that is never prepared.

    options: dropout_p, is_causal, scale, enable_gqa and return_logsumexp. fields: where one is given that
    torch has not, which is prepared on a CUDA device alone. The kind holds the state of the switches: call
    this before anything is decided by them.
    """
    dropout, is_causal, scale, enable_gqa, logsumexp = options
    tensors: Any = type(query)
    home = _home(tensors)
    if (
        not home
        or type(key) is not tensors
        or type(value) is not tensors
        or type(is_causal) is not bool
        or type(enable_gqa) is not bool
        or type(logsumexp) is not bool
        or type(dropout) not in (float, int)
        or not (scale is None or type(scale) is float)
        or not (seed is None or type(seed) is int)
    ):
        return None
    records = False
    if home == "torch" and (query.requires_grad or key.requires_grad or value.requires_grad):
        records = is_recorded(query, key, value)
    # A prepared call checks the rest itself.
    of_mask: object = None
    try:
        if type(mask) is CausalBias:
            if mask.shape != (query.shape[-2], key.shape[-2]):
                return None
            of_mask = mask.variant
        elif mask is not None:
            if type(mask) is not tensors or (home == "torch" and is_recorded(mask)):
                return None
            of_mask = mask.dtype
        on_device = home == "cuda" or (home == "torch" and query.is_cuda)
        if on_device:
            width, forms = None, _forms(query, key, value, mask)
        else:
            width, forms = query.shape[-1], None
        if fields is not None:
            more = _kind_of_fields(fields, tensors, records) if on_device else None
            if more is None:
                return None
            forms = forms, more
    except (IndexError, RuntimeError):  # no dimension; a torch tensor that is nested
        return None
    return store.state, tensors, width, query.dtype, of_mask, options, records, forms


def _forms(query: Any, key: Any, value: Any, mask: Any) -> Kind:
    """Return sizes, strides, devices and types, but those that are in a kind already."""
    forms: Kind = (
        *(query.shape, query.stride(), query.device),
        *(key.shape, key.stride(), key.device, key.dtype),
        *(value.shape, value.stride(), value.device, value.dtype),
    )
    if mask is None or type(mask) is CausalBias:
        return forms
    return *forms, mask.shape, mask.stride(), mask.device


def _form(tensor: Any) -> Kind:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _kind_of_fields(fields: Fields, tensors: type, records: bool) -> Kind | None:
    """Return what calls have in common of the fields that torch has not, None where they are looked at."""
    found: list[Any] = [fields.softcap, fields.lower_right]
    if type(fields.softcap) not in (float, int) or type(fields.lower_right) is not bool:
        return None
    for numbers in (fields.window, fields.query_lengths, fields.key_lengths):
        if numbers is None:
            found.append(None)
            continue
        if type(numbers) not in (tuple, list) or not {*map(type, numbers)} <= {int}:
            return None
        found.append(tuple(numbers))  # a list has no hash
    for tensor in (fields.sinks, fields.page_table):
        if tensor is None:
            found.append(None)
            continue
        is_torch = _home(tensors) == "torch"
        if type(tensor) is not tensors or records or (is_torch and is_recorded(tensor)):
            return None
        found.append(_form(tensor))
    return tuple(found)


def kind_of_backward(kind: Kind, grad_out: Any, out: Any, logsumexp: Any) -> Kind | None:
    """Return the kind of a call for the gradients of a call of a kind, None as `kind_of_call`."""
    tensors: Any = kind[1]
    records = kind[-2]
    is_torch = _home(tensors) == "torch"
    if records or not (type(grad_out) is type(out) is type(logsumexp) is tensors):
        return None
    if is_torch and is_recorded(grad_out, out, logsumexp):
        return None
    return *kind, "backward"


def keep(kind: Kind, prepare: Callable[[], Prepared | None]) -> None:
    """Note a call that was computed, and have its kind prepared if it is not the first."""
    found = _kept.get(kind)
    if found is None:
        if len(_kept) >= _MOST_KINDS:
            _kept.clear()
        _kept[kind] = ()
        return
    turn = store.turn
    if len(found) >= _MOST_FORMS or store.state is not kind[0]:
        return
    # What cannot be prepared is stood for, so that this is not tried for ever.
    made = prepare() or (lambda *_: None)
    if store.turn is turn:  # or it was decided by other switches, which may be back by now
        _kept[kind] = (*found, made)


def is_recorded(*tensors: Any) -> bool:
    """Tell whether torch records what is done with one of its tensors, to differentiate it."""
    for tensor in tensors:
        if tensor.requires_grad:
            return bool(sys.modules["torch"].is_grad_enabled())
    return False


@lru_cache(maxsize=64)
def _home(tensors: type) -> str:
    """Return the library of a type whose shape and element type are plain attributes, "" for others."""
    return _TYPES.get((tensors.__module__, tensors.__qualname__), "")

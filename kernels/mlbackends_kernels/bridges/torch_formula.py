"""Attention and its gradients by the formula, in torch's operations, so that torch differentiates both again.

It computes gradients of gradients and forward-mode derivatives, and what no backend of ours may compute.
The tensors are those of the operator: query, key, value, mask, sinks, seed, slopes and page table. Its
memory grows with the product of the lengths.
"""

from typing import Any

import torch

from mlbackends_kernels.tensors.dropout import keep_mask


def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    sinks: Any = None,
    seed: Any = None,
    alibi_slopes: Any = None,
    page_table: Any = None,
    **options: Any,
) -> tuple[Any, Any]:
    """Return attention, and the logarithms of the rows' sums without a derivative."""
    if page_table is not None:
        raise NotImplementedError("attention with pages has no derivative")
    if options.get("key_lengths"):
        parts = [
            attention(query[rows], key[keys], value[keys], mask, sinks, seed, alibi_slopes, **alone)
            for rows, keys, alone in _sequences(options)
        ]
        return torch.cat([out for out, _ in parts], -2), torch.cat([lse for _, lse in parts], -1)
    weights, _, _, logsumexp = _weights(query, key, mask, sinks, alibi_slopes, **options)
    value = _repeated(value.to(weights.dtype), query, options)
    kept = _kept(weights, seed, **options)
    out = (weights if kept is None else weights * kept) @ value
    return out.to(query.dtype), logsumexp.detach()


def gradients(
    grad_out: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    sinks: Any = None,
    seed: Any = None,
    alibi_slopes: Any = None,
    *,
    mask_gradient: bool = False,
    **options: Any,
) -> tuple[Any, ...]:
    """Return the gradients of query, key, value, and where they are wanted of the mask and the sinks."""
    if options.get("key_lengths"):
        more = (mask, sinks, seed, alibi_slopes)
        parts = [
            gradients(grad_out[rows], query[rows], key[keys], value[keys], *more, **alone)
            for rows, keys, alone in _sequences(options)
        ]
        own = zip(*parts, strict=True)
        joined = [torch.cat(gradient, -2) for gradient in (next(own), next(own), next(own))]
        return (*joined, None, None if sinks is None else sum(part[4] for part in parts))
    weights, slope, of_sinks, _ = _weights(query, key, mask, sinks, alibi_slopes, **options)
    wide, scale = weights.dtype, _scale(query, options.get("scale"))
    coming = grad_out.to(wide)
    for_weights = coming @ _repeated(value.to(wide), query, options).mT
    kept = _kept(weights, seed, **options)
    used = weights if kept is None else weights * kept
    for_weights = for_weights if kept is None else for_weights * kept
    delta = (weights * for_weights).sum(-1, keepdim=True)
    masked = weights * (for_weights - delta)
    scores = masked if slope is None else masked * slope
    own_query = scale * scores @ _repeated(key.to(wide), query, options)
    own_key = scale * scores.mT @ query.to(wide)
    found = [
        _summed(gradient, tensor, options)
        for gradient, tensor in ((own_query, query), (own_key, key), (used.mT @ coming, value))
    ]
    for_sinks = None
    if sinks is not None:
        per_head = -(of_sinks * delta[..., 0]).sum(-1)
        for_sinks = per_head.sum_to_size(sinks.shape).to(sinks.dtype)
    return (*found, masked.sum_to_size(mask.shape).to(mask.dtype) if mask_gradient else None, for_sinks)


def _weights(
    query: Any,
    key: Any,
    mask: Any,
    sinks: Any,
    alibi_slopes: Any,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    window: Any = None,
    lower_right: bool = False,
    softcap: float = 0.0,
    **_: Any,
) -> tuple[Any, Any, Any, Any]:
    """Return the weights, the slope of the soft cap or None, the sinks' weights, and the logarithms."""
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    key = _repeated(key.to(wide), query, {"enable_gqa": enable_gqa})
    scores = query.to(wide) @ key.mT * _scale(query, scale)
    slope = None
    if softcap:
        capped = (scores / softcap).tanh()
        scores, slope = capped * softcap, 1 - capped * capped
    rows, keys = scores.shape[-2:]
    left, right = window or (-1, -1)
    right = 0 if is_causal else right
    shown = mask if mask is not None and mask.dtype == torch.bool else None
    place = torch.arange(keys, device=query.device) - torch.arange(rows, device=query.device)[:, None]
    place = place - (keys - rows) if lower_right else place
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.to(wide).reshape(-1, 1, 1) * place.abs()
    if mask is not None and shown is None:
        scores = scores + mask.to(wide)
    if (left, right) != (-1, -1):
        near = (place >= -left if left >= 0 else True) & (place <= (right if right >= 0 else keys + rows))
        shown = near if shown is None else shown & near
    if shown is not None:
        scores = scores.masked_fill(~shown, -torch.inf)
    if sinks is not None:
        own = sinks.to(wide).reshape(-1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, own], -1)
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    scores = scores.masked_fill(blind, 0)
    weights = scores.softmax(-1).masked_fill(blind, 0)
    logsumexp = scores.logsumexp(-1).masked_fill(blind[..., 0], 0)
    if sinks is None:
        return weights, slope, None, logsumexp
    return weights[..., :-1], slope, weights[..., -1], logsumexp


def _scale(query: Any, scale: float | None) -> Any:
    return (query.shape[-1] or 1) ** -0.5 if scale is None else scale


def _kept(
    weights: Any, seed: Any, *, dropout_p: float = 0.0, first_batch: int = 0, **_: Any
) -> torch.Tensor | None:
    """Return the factor of each weight after dropout, None without dropout."""
    if not dropout_p:
        return None
    if dropout_p == 1:
        return torch.zeros_like(weights)
    *leading, rows, keys = weights.shape
    kept = keep_mask(int(seed), dropout_p, tuple(leading), range(rows), keys, first_batch)
    return torch.from_numpy(kept).to(weights.device, weights.dtype) / (1 - dropout_p)


def _sequences(options: dict[str, Any]) -> Any:
    """Yield the rows and keys of each packed sequence, and its options."""
    row = key = 0
    alone = {name: option for name, option in options.items() if not name.endswith("_lengths")}
    lengths = zip(options["query_lengths"], options["key_lengths"], strict=True)
    for number, (rows, keys) in enumerate(lengths):
        own = {**alone, "first_batch": number}
        yield (..., slice(row, row + rows), slice(None)), (..., slice(key, key + keys), slice(None)), own
        row, key = row + rows, key + keys


def _repeated(tensor: Any, query: Any, options: dict[str, Any]) -> Any:
    """Return key or value with a head for each head of the query."""
    if not options.get("enable_gqa") or tensor.shape[-3] == query.shape[-3]:
        return tensor
    return tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3)


def _summed(gradient: Any, tensor: Any, options: dict[str, Any]) -> Any:
    """Return a gradient summed over what was broadcast, and over the heads that share one."""
    if options.get("enable_gqa") and tensor.shape[-3] not in (1, gradient.shape[-3]):
        gradient = gradient.unflatten(-3, (tensor.shape[-3], -1)).sum(-3)
    return gradient.sum_to_size(tensor.shape).to(tensor.dtype)

"""Our attention in torch's graph of gradients; the backend of the forward pass computes the backward pass."""

from collections.abc import Callable
from typing import Any

import torch

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa import calls
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.describe import describe
from mlbackends_kernels.tensors.interchange import as_array, like, seeded


def attended(
    backend: AttentionBackend, problem: AttentionProblem, *tensors: Any, **more: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention with a gradient, and each row's logarithm without one.

    tensors: query, key, value and mask; more: as for `AttentionBackend.run`. The backward pass drops the same
    weights. Raises RuntimeError for a query that is not a torch tensor, since the result is of its kind.
    """
    names = ("sinks",) if "sinks" in more else ()
    tensors = _as_torch((*tensors, *(more[name] for name in names)))
    problem = seeded(problem, tensors[0])

    def differentiate(grad_out: Any, *saved: Any) -> tuple[Any, ...]:
        own = more | dict(zip(names, saved[4:-2], strict=True))
        calls.note(backend.name, saved[0], direction="backward")
        return backend.run_backward(problem, grad_out, *saved[:4], *saved[-2:], **own)

    results = list(backend.run_with_logsumexp(problem, *tensors[:4], **more))
    return Attention.apply(results, differentiate, *tensors)  # type: ignore[no-any-return,no-untyped-call,unused-ignore]


def connected(zeros: torch.Tensor, *tensors: Any) -> torch.Tensor:
    """Return the result of an empty problem, connected to its tensors, whose gradients are zeros."""
    return _Empty.apply([zeros], *_as_torch(tensors))  # type: ignore[no-any-return,no-untyped-call,unused-ignore]


def _as_torch(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the tensors as torch tensors, for the backward pass; the first one must be one already."""
    if not isinstance(tensors[0], torch.Tensor):
        kind = type(tensors[0]).__qualname__
        message = (
            f"the result is of the kind of query, {kind}, which cannot have gradients:"
            " pass query as a torch tensor, or call it under torch.no_grad()"
        )
        raise RuntimeError(message)  # noqa: TRY004  torch's type
    converted = []
    for tensor in tensors:
        if tensor is None or isinstance(tensor, torch.Tensor):
            converted.append(tensor)
            continue
        array = as_array(tensor)
        writable = array if array.flags.writeable else array.copy()  # torch has no read-only tensors
        converted.append(like(torch.empty(0), writable, describe(tensor).dtype))
    return tuple(converted)


class Attention(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """Connects a result to its inputs: query, key, value, mask and sinks."""

    @staticmethod
    def forward(
        ctx: Any, results: list[Any], differentiate: Callable[..., tuple[Any, ...]], *tensors: Any
    ) -> tuple[Any, Any]:
        """Return the results, attention and logarithms, which are in a list so that they are not inputs.

        differentiate: takes the gradient of the result, the tensors, the result and the logarithms, and
        returns a gradient for each tensor.
        """
        out, logsumexp = results
        results.clear()
        ctx.differentiate = differentiate
        ctx.save_for_backward(*tensors, out, logsumexp)
        ctx.mark_non_differentiable(logsumexp)
        return out, logsumexp

    @staticmethod
    def backward(ctx: Any, grad_out: Any, _: Any) -> tuple[Any, ...]:
        """Return the gradients of the tensors that require one."""
        saved, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        with torch.no_grad():
            gradients = ctx.differentiate(grad_out, *saved)
        chosen = [grad for grad, is_needed in zip(gradients, needed, strict=False) if is_needed]
        # torch.autograd.Function.once_differentiable checks only grad_out.
        if torch.is_grad_enabled():
            chosen = _Last.apply(chosen, grad_out, *saved[: len(needed)])  # type: ignore[no-untyped-call,unused-ignore]
        left = iter(chosen)
        return None, None, *(next(left) if is_needed else None for is_needed in needed)


class _Last(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """Gradients that raise an error when they are differentiated."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Any], *tensors: Any) -> tuple[Any, ...]:
        del ctx, tensors
        return tuple(gradients)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        del ctx, gradients
        raise RuntimeError(
            "scaled_dot_product_attention() was differentiated once already, and second-order gradients"
            " are not supported: omit create_graph, or let torch compute it"
        )


class _Empty(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    @staticmethod
    def forward(ctx: Any, results: list[Any], *tensors: Any) -> Any:
        ctx.save_for_backward(*tensors)
        return results.pop()

    @staticmethod
    def backward(ctx: Any, _: Any) -> tuple[Any, ...]:
        pairs = zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        return None, *(torch.zeros_like(tensor) if needed else None for tensor, needed in pairs)

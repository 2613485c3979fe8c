"""Our attention in torch's graph of gradients: the backward pass is that of the backend that computed it."""

from collections.abc import Callable
from typing import Any

import torch

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.describe import describe
from mlbackends_kernels.tensors.interchange import as_array, like, seeded


def attended(
    backend: AttentionBackend, problem: AttentionProblem, *tensors: Any, **more: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention with a gradient, and each row's logarithm without one.

    tensors: query, key, value and mask; more: as of `AttentionBackend.run`. Raises RuntimeError for a query
    that is none of torch's, for then the result is none either. A backward pass drops the weights that were
    dropped here.
    """
    names = ("sinks",) if "sinks" in more else ()
    tensors = _as_torch((*tensors, *(more[name] for name in names)))
    problem = seeded(problem, tensors[0])

    def differentiate(grad_out: Any, *saved: Any) -> tuple[Any, ...]:
        own = dict(zip(names, saved[4:-2], strict=True))
        return backend.run_backward(problem, grad_out, *saved[:4], *saved[-2:], **own)

    found = list(backend.run_with_logsumexp(problem, *tensors[:4], **more))
    return Attention.apply(found, differentiate, *tensors)  # type: ignore[no-any-return,no-untyped-call,unused-ignore]


def connected(zeros: torch.Tensor, *tensors: Any) -> torch.Tensor:
    """Return the result of an empty problem as one of its tensors, to which it gives zeros."""
    return _Empty.apply([zeros], *_as_torch(tensors))  # type: ignore[no-any-return,no-untyped-call,unused-ignore]


def _as_torch(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return tensors as those of torch, which can be saved for a backward pass; the first one must be."""
    if not isinstance(tensors[0], torch.Tensor):
        kind = type(tensors[0]).__qualname__
        message = (
            f"a result is of the kind of query, {kind}, which carries no gradient of the others:"
            " give query as a torch tensor, or call it under torch.no_grad()"
        )
        raise RuntimeError(message)  # noqa: TRY004  torch's type for what it cannot differentiate
    found = []
    for tensor in tensors:
        if tensor is None or isinstance(tensor, torch.Tensor):
            found.append(tensor)
            continue
        array = as_array(tensor)
        writable = array if array.flags.writeable else array.copy()  # torch knows no other memory
        found.append(like(torch.empty(0), writable, describe(tensor).dtype))
    return tuple(found)


class Attention(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """Joins what was computed to the tensors that it was computed from: query, key, value, mask, sinks."""

    @staticmethod
    def forward(
        ctx: Any, found: list[Any], differentiate: Callable[..., tuple[Any, ...]], *tensors: Any
    ) -> tuple[Any, Any]:
        """Return the result and each row's logarithm, which stand in a list so that they are no inputs.

        differentiate: takes the gradient of the result, the tensors, the result and the logarithms, and
        returns a gradient for each of the tensors.
        """
        out, logsumexp = found
        found.clear()
        ctx.differentiate = differentiate
        ctx.save_for_backward(*tensors, out, logsumexp)
        ctx.mark_non_differentiable(logsumexp)
        return out, logsumexp

    @staticmethod
    def backward(ctx: Any, grad_out: Any, _: Any) -> tuple[Any, ...]:
        """Return the gradients of what requires one."""
        saved, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        with torch.no_grad():
            found = ctx.differentiate(grad_out, *saved)
        chosen = [each for each, is_needed in zip(found, needed, strict=False) if is_needed]
        # torch.autograd.Function.once_differentiable looks at grad_out alone.
        if torch.is_grad_enabled():
            chosen = _Last.apply(chosen, grad_out, *saved[: len(needed)])  # type: ignore[no-untyped-call,unused-ignore]
        left = iter(chosen)
        return None, None, *(next(left) if is_needed else None for is_needed in needed)


class _Last(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """Gradients that cannot be differentiated: to do so raises an error."""

    @staticmethod
    def forward(ctx: Any, found: list[Any], *tensors: Any) -> tuple[Any, ...]:
        del ctx, tensors
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        del ctx, gradients
        raise RuntimeError(
            "scaled_dot_product_attention() was differentiated once already, and its gradients have"
            " no gradients of their own: leave create_graph away, or let torch compute it"
        )


class _Empty(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    @staticmethod
    def forward(ctx: Any, found: list[Any], *tensors: Any) -> Any:
        ctx.save_for_backward(*tensors)
        return found.pop()

    @staticmethod
    def backward(ctx: Any, _: Any) -> tuple[Any, ...]:
        pairs = zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True)
        return None, *(torch.zeros_like(each) if needed else None for each, needed in pairs)

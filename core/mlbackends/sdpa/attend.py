"""scaled_dot_product_attention: torch's checks in torch's order, then the backend that was chosen."""

from functools import partial
from typing import Any

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.sdpa import call_cache
from mlbackends.sdpa.backend import Prepared
from mlbackends.sdpa.bias import CausalBias
from mlbackends.sdpa.describe import without_gradients
from mlbackends.sdpa.request import Operation, Options, Request, requested
from mlbackends.switches.dynamo import untraced

_OPERATION = Operation(
    "scaled_dot_product_attention",
    ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
)


@untraced
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_logsumexp: bool = False,
    seed: int | None = None,
) -> Any:
    """Return softmax(query @ transposed(key) * scale + attn_mask) @ value.

    Shapes: query (..., H, L, E), key (..., Hkv, S, E), value (..., Hkv, S, Ev); the result is (..., H, L, Ev)
    and of the same kind as query: a numpy array for a numpy array, a torch tensor for a torch tensor,
    whose gradients are ours where query, key, value or a mask of numbers requires one; gradients of
    gradients are refused.
    The mask of a numpy.ma.MaskedArray is ignored: all its numbers count.
    attn_mask: a CausalBias; or booleans, False where a key is not seen; or numbers that are added to
    the scores; of a shape that broadcasts to (..., H, L, S). A row that sees no key is 0.
    dropout_p: the probability, 0 to 1, that a weight is dropped; it counts whenever it is above 0, and
    what is kept is divided by 1 - dropout_p. Which ones are dropped is told by seed, of which the lower
    64 bits count; without one it is repeatable by torch.manual_seed for torch's tensors (whose
    generator for the CPU is drawn from, once a call), by numpy.random.seed for all others. They are
    not the ones that torch itself would drop.
    scale: None for 1/sqrt(E). enable_gqa: heads of key and value serve groups of query heads.
    return_logsumexp: return also the natural logarithm of the sum of the exponentials of each row's
    scores, scaled and masked: (..., H, L), of the kind of query, float64 for float64, else float32, 0
    for a row that sees no key. It has no gradient.

    Raises RuntimeError, TypeError, ValueError, IndexError and NotImplementedError where torch does;
    NoBackend, a RuntimeError, where no backend may or can compute it, with all the reasons.
    """
    told = dropout_p, is_causal, scale, enable_gqa, return_logsumexp
    kind = call_cache.kind_of_call(query, key, value, attn_mask, seed, told)
    if kind is not None:
        mask = None if isinstance(attn_mask, CausalBias) else attn_mask
        for call in call_cache.prepared_calls(kind):
            found = call(query, key, value, mask, seed)
            if found is not None:
                return found
    options = Options(dropout_p, is_causal, scale, enable_gqa, seed)
    if not isinstance(return_logsumexp, bool):
        raise _OPERATION.wrong("return_logsumexp", "bool", return_logsumexp)
    asked = requested(_OPERATION, query, key, value, attn_mask, options)
    if asked.problem is None:
        out, logsumexp = _nothing(asked, query, key, value)
        return (out, logsumexp) if return_logsumexp else out
    problem = _frozen(asked.problem) if without_gradients() else asked.problem
    tensors = query, key, value, asked.mask
    if return_logsumexp or problem.wants_gradient:
        out, logsumexp = run_with_logsumexp(problem, *tensors)
    else:
        out, logsumexp = run(problem, *tensors), None
    if kind is not None:
        results = out, logsumexp
        # No lambda: its cells would cost every call.
        call_cache.keep(kind, partial(_prepared, problem, return_logsumexp, *tensors, *results))
    return (out, logsumexp) if return_logsumexp else out


def _prepared(problem: AttentionProblem, return_logsumexp: bool, *tensors: Any) -> Prepared | None:
    """Have the backend prepare calls like one. tensors: its inputs, and its results without a choice."""
    from msgspec.structs import replace

    from mlbackends.sdpa.dispatch import lasting_choice

    records = problem.wants_gradient
    if return_logsumexp and not records:
        problem = replace(problem, logsumexp=True)
    backend = lasting_choice(problem)
    if backend is None:
        return None
    if not records:
        return backend.prepared(problem, *tensors)
    from mlbackends_kernels.bridges.torch_gradients import prepared

    return prepared(backend, problem, return_logsumexp, *tensors)


def run(problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None) -> Any:
    """Compute a problem with the backend that is chosen for it. Raises NoBackend if there is none."""
    if problem.wants_gradient:
        return run_with_logsumexp(problem, query, key, value, mask)[0]
    from mlbackends.sdpa.dispatch import chosen_backend

    return chosen_backend(problem).run(problem, query, key, value, mask)


def run_with_logsumexp(
    problem: AttentionProblem, query: Any, key: Any, value: Any, mask: Any = None
) -> tuple[Any, Any]:
    """Compute a problem, and each row's logarithm. Raises NoBackend if nobody can.

    Torch's tensors that require gradients are joined to torch's graph.
    """
    from msgspec.structs import replace

    from mlbackends.sdpa.dispatch import chosen_backend

    if not problem.wants_gradient:
        problem = replace(problem, logsumexp=True)
        return chosen_backend(problem).run_with_logsumexp(problem, query, key, value, mask)
    from mlbackends_kernels.bridges.torch_gradients import attended

    # A backend that takes "gradient" tells the logarithms, too: the backward pass needs them.
    return attended(chosen_backend(problem), problem, query, key, value, mask)


def _nothing(asked: Request, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """Return the zeros of what is empty, in torch's graph where an input requires a gradient."""
    from mlbackends_kernels.tensors.interchange import zeros_like

    out = zeros_like(query, asked.output_shape)
    logsumexp = zeros_like(query, asked.output_shape[:-1], asked.logsumexp_dtype)
    inputs = (query, key, value)
    if without_gradients() or not any(getattr(each, "requires_grad", False) for each in inputs):
        return out, logsumexp
    from mlbackends_kernels.bridges.torch_gradients import connected

    return connected(out, *inputs), logsumexp


def _frozen(problem: AttentionProblem) -> AttentionProblem:
    """Return a problem of which no tensor requires a gradient."""
    if not problem.wants_gradient:
        return problem
    from msgspec.structs import replace

    def plain(spec: TensorSpec) -> TensorSpec:
        return replace(spec, requires_grad=False) if spec.requires_grad else spec

    return replace(
        problem,
        query=plain(problem.query),
        key=plain(problem.key),
        value=plain(problem.value),
        mask=problem.mask and plain(problem.mask),
    )

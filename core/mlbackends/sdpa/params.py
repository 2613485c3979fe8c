"""SDPAParams, and whether torch's attention kernels for CUDA take it, as `can_use_*` returns it."""

from typing import Any

from mlbackends.base.errors import InvalidProblem
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa.constraints import unmet
from mlbackends.sdpa.describe import describe, device_of, is_tensor
from mlbackends.sdpa.sdp_backend import SDPBackend

_GENERATIONS = ("7.5", "8.0", "8.9", "9.0", "10.0", "12.0")


class SDPAParams:
    """The arguments of a call of attention: exactly seven, by position. Read-only.

    Only the types of the arguments are checked: whether they make sense is what `can_use_*` returns.
    """

    __module__ = "mlbackends.cuda"
    __slots__ = ("_parts",)

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any,
        dropout: float,
        is_causal: bool,
        enable_gqa: bool,
        /,
    ) -> None:
        numeric = hasattr(type(dropout), "__float__") or hasattr(type(dropout), "__index__")
        for name, argument, fits, expected in (
            ("query", query, is_tensor(query), "a tensor"),
            ("key", key, is_tensor(key), "a tensor"),
            ("value", value, is_tensor(value), "a tensor"),
            ("attn_mask", attn_mask, attn_mask is None or is_tensor(attn_mask), "a tensor"),
            ("dropout", dropout, numeric, "a number"),
            ("is_causal", is_causal, hasattr(type(is_causal), "__bool__"), "a bool"),
            ("enable_gqa", enable_gqa, hasattr(type(enable_gqa), "__bool__"), "a bool"),
        ):
            if not fits:
                kind = type(argument).__name__
                raise TypeError(f"SDPAParams: {name} must be {expected}, not {kind}")
        self._parts = (
            *(query, key, value, attn_mask),
            *(float(dropout), bool(is_causal), bool(enable_gqa)),
        )

    query = property(lambda self: self._parts[0], doc="The query.")
    key = property(lambda self: self._parts[1], doc="The key.")
    value = property(lambda self: self._parts[2], doc="The value.")
    attn_mask = property(lambda self: self._parts[3], doc="The mask, None without one.")
    dropout = property(lambda self: self._parts[4], doc="The probability that a weight is dropped.")
    is_causal = property(lambda self: self._parts[5], doc="Whether row i sees the keys up to i.")
    enable_gqa = property(lambda self: self._parts[6], doc="Whether heads of keys may be shared.")


def problem_of(params: SDPAParams) -> AttentionProblem:
    """Return the problem that the arguments make. Raises InvalidProblem where they make none."""
    query = describe(params.query)
    return AttentionProblem(
        query=query,
        key=describe(params.key),
        value=describe(params.value),
        mask=None if params.attn_mask is None else describe(params.attn_mask),
        dropout=params.dropout,
        is_causal=params.is_causal,
        enable_gqa=params.enable_gqa,
        device=device_of(params.query, query),
    )


def why_not_on_cuda(kind: SDPBackend, params: SDPAParams) -> tuple[Reason, ...]:
    """Return every reason why torch's kernel for CUDA does not take it; () if it does."""
    from mlbackends.sdpa.dispatch import switch_reasons
    from mlbackends.sdpa.rules import rules
    from mlbackends.sdpa.rules.environment import environment_here

    switched = switch_reasons(kind)
    try:
        problem = problem_of(params)
    except InvalidProblem as error:
        return (*switched, Reason("invalid-problem", str(error), error.hint))
    constraints = rules(kind, "cuda", environment_here(problem)) or ()
    return (*switched, *unmet(constraints, problem))


def computes_on_cuda(kind: SDPBackend) -> bool:
    """Tell whether an installed backend of a kind takes a plain problem on some CUDA device."""
    from mlbackends.sdpa.dispatch import backends

    spec = TensorSpec((2, 4, 128, 64), "float16")
    problems = [
        AttentionProblem(
            query=spec, key=spec, value=spec, device=Device("cuda", 0, capability=each)
        )
        for each in _GENERATIONS
    ]
    return any(
        not backend.unsupported_reasons(problem) and not backend.missing_parts()
        for backend in backends()
        if backend.answers_to is kind
        for problem in problems
    )

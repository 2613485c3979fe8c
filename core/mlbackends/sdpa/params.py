"""SDPAParams: one question to `can_use_*`, as torch writes it."""

from typing import Any

from mlbackends.model.problem import AttentionProblem
from mlbackends.sdpa.describe import describe, device_of, is_tensor


class SDPAParams:
    """The arguments of a call of attention: exactly seven, by position. Read-only.

    Only the kinds of the arguments are checked: whether they make sense is what `can_use_*` answers.
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
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            _expect(is_tensor(tensor), name, "a tensor", tensor)
        _expect(attn_mask is None or is_tensor(attn_mask), "attn_mask", "a tensor", attn_mask)
        numeric = hasattr(type(dropout), "__float__") or hasattr(type(dropout), "__index__")
        _expect(numeric, "dropout", "a number", dropout)
        _expect(hasattr(type(is_causal), "__bool__"), "is_causal", "a bool", is_causal)
        _expect(hasattr(type(enable_gqa), "__bool__"), "enable_gqa", "a bool", enable_gqa)
        self._parts = (
            *(query, key, value, attn_mask),
            *(float(dropout), bool(is_causal), bool(enable_gqa)),
        )

    @property
    def query(self) -> Any:
        """The query."""
        return self._parts[0]

    @property
    def key(self) -> Any:
        """The key."""
        return self._parts[1]

    @property
    def value(self) -> Any:
        """The value."""
        return self._parts[2]

    @property
    def attn_mask(self) -> Any:
        """The mask, None without one."""
        return self._parts[3]

    @property
    def dropout(self) -> float:
        """The probability that a weight is dropped."""
        return float(self._parts[4])

    @property
    def is_causal(self) -> bool:
        """Whether row i sees the keys up to i."""
        return bool(self._parts[5])

    @property
    def enable_gqa(self) -> bool:
        """Whether heads of key and value may be shared."""
        return bool(self._parts[6])


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


def _expect(fits: bool, name: str, wanted: str, seen: object) -> None:
    if not fits:
        raise TypeError(f"SDPAParams: {name} must be {wanted}, not {type(seen).__name__}")

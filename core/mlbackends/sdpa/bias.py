"""CausalBias: a causal mask that is never materialised, aligned top-left or bottom-right.

causal_upper_left(3, 4)    1 0 0 0        causal_lower_right(3, 4)    1 1 0 0
1 1 0 0                                    1 1 1 0
1 1 1 0                                    1 1 1 1
"""

from enum import IntEnum
from typing import Any


class CausalVariant(IntEnum):
    """The corner of the scores from which the diagonal starts."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias:
    """A causal mask for scores of (seq_len_q, seq_len_kv), to pass as `attn_mask`."""

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        assert isinstance(variant, CausalVariant), (
            f"variant must be a CausalVariant, got {type(variant).__name__}"
        )
        length: Any
        for length in (seq_len_q, seq_len_kv):
            if not isinstance(length, int) or isinstance(length, bool):
                raise TypeError(f"a length must be an int, not {type(length).__name__}")
            if length < 0:
                raise RuntimeError(f"a length cannot be negative: {length}")
        self.variant = variant
        self.seq_len_q = seq_len_q
        self.seq_len_kv = seq_len_kv

    @property
    def shape(self) -> tuple[int, int]:
        """(seq_len_q, seq_len_kv)."""
        return self.seq_len_q, self.seq_len_kv

    @property
    def diagonal(self) -> int:
        """Row i sees the keys up to i + diagonal."""
        lower_right = self.variant is CausalVariant.LOWER_RIGHT
        return self.seq_len_kv - self.seq_len_q if lower_right else 0

    def rows(self) -> list[list[bool]]:
        """Return the mask as rows of bools: True where a row sees a key."""
        keys = range(self.seq_len_kv)
        return [[key <= row + self.diagonal for key in keys] for row in range(self.seq_len_q)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CausalBias):
            return NotImplemented
        return (self.variant, self.shape) == (other.variant, other.shape)

    def __hash__(self) -> int:
        return hash((self.variant, self.shape))

    def __repr__(self) -> str:
        return f"CausalBias({self.variant}, {self.seq_len_q}, {self.seq_len_kv})"


def causal_upper_left(*size: int) -> CausalBias:
    """Return a top-left causal mask."""
    assert len(size) == 2, f"a causal mask has 2 sizes, not {len(size)}"
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size: int) -> CausalBias:
    """Return a bottom-right causal mask."""
    assert len(size) == 2, f"a causal mask has 2 sizes, not {len(size)}"
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)


def as_bias(mask: Any) -> CausalBias | None:
    """Return a mask as a CausalBias, torch's own included; None for any other mask."""
    if isinstance(mask, CausalBias):
        return mask
    if type(mask).__name__ != "CausalBias" or not hasattr(mask, "variant"):
        return None
    return CausalBias(CausalVariant[mask.variant.name], mask.seq_len_q, mask.seq_len_kv)


def without_bias(
    mask: Any, is_causal: Any, lower_right: Any, scores: tuple[int, int], key_lengths: Any = None
) -> tuple[Any, Any, Any]:
    """Return attn_mask, is_causal and lower_right, of which the last two say what a CausalBias says.

    scores: L and S. Raises ValueError for a CausalBias with is_causal or with several lengths, RuntimeError
    for one of another shape.
    """
    bias = as_bias(mask)
    if bias is None:
        return mask, is_causal, lower_right
    if is_causal:
        raise ValueError("CausalBias should not be used with causal=True")
    if key_lengths is not None:
        raise ValueError("a CausalBias has one size: for several lengths use is_causal, and lower_right")
    if bias.shape != scores:
        raise RuntimeError(f"a causal mask of shape {bias.shape} does not fit scores of {scores}")
    return None, True, lower_right or bias.variant is CausalVariant.LOWER_RIGHT

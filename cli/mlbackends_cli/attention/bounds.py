"""The least time of a pass on a chip, in words."""

from mlbackends.model.explanation import Bound
from mlbackends_cli.text.plain import binary_size


def bound_text(bound: Bound, is_backward: bool) -> str:
    """Return the least time of a pass on a chip as a sentence."""
    what = " for the backward pass" if is_backward else ""
    least = f"at best {time_text(bound.seconds)}{what} on {bound.product}: limited by {bound.limited_by}"
    if not bound.math_bytes:
        return least
    more = f"MATH moves {binary_size(bound.math_bytes)} of scores as well"
    return f"{least}; {more}: at best {time_text(bound.math_seconds)}"


def time_text(seconds: float) -> str:
    """Return a time for people."""
    if seconds >= 1:
        return f"{seconds:,.3g} s" if seconds < 100 else f"{seconds:,.0f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.3g} µs"

"""Freezing the switches, and the older switch of float32 products: the functions of `mlbackends` itself."""

from mlbackends.switches import store


def disable_global_flags() -> None:
    """Forbid bare assignment to the switches of cudnn, mkldnn and miopen, and to fp32_precision.

    For the life of the process: there is no way back. `flags()` goes on working.
    """
    store.freeze()


def flags_frozen() -> bool:
    """Tell whether bare assignment is forbidden here and now."""
    return store.frozen()


def get_float32_matmul_precision() -> str:
    """Return "highest", "high" or "medium".

    Raises RuntimeError where fp32_precision was set to what these words cannot say.
    """
    return str(store.read("float32_matmul_precision"))


def set_float32_matmul_precision(precision: str) -> None:
    """Set the precision inside float32 products: "highest", "high" (TF32) or "medium" (bfloat16 in oneDNN).

    Raises RuntimeError for another word; torch only warns, and goes on as before.
    """
    store.write("float32_matmul_precision", precision)

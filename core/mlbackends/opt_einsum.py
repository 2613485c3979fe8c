"""opt_einsum: the order in which torch's einsum multiplies; carried into torch programs."""

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING

from mlbackends.switches import availability
from mlbackends.switches.modules import install

if TYPE_CHECKING:
    from typing import Any


@lru_cache
def is_available() -> bool:
    """Return whether the package opt_einsum can be imported."""
    return availability.is_importable("opt_einsum")


def get_opt_einsum() -> "Any":
    """Import and return the package opt_einsum; None if it is not installed."""
    if not is_available():
        return None
    return importlib.import_module("opt_einsum")


install(__name__, "OptEinsumModule")

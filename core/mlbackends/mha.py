"""The fast path of torch's multi-head attention: a setting that is carried into torch programs."""

from mlbackends.switches import store
from mlbackends.switches.modules import install


def get_fastpath_enabled() -> bool:
    """Return whether the fast path may be used, if the inputs allow it."""
    return bool(store.read("mha.fastpath_enabled"))


def set_fastpath_enabled(value: bool) -> None:
    """Allow or forbid the fast path. Raises RuntimeError for what is not a bool; torch stores anything."""
    store.write("mha.fastpath_enabled", value)


install(__name__, "_MhaModule")

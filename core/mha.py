"""Multi-head attention's fast path, which `mlbackends.multi_head_attention` takes where it may."""

from mlbackends import flag_store
from mlbackends.flag_modules import install


def get_fastpath_enabled() -> bool:
    """Tell whether the fast path may be taken; it is only where the inputs allow it too."""
    return bool(flag_store.read("mha.fastpath_enabled"))


def set_fastpath_enabled(value: bool) -> None:
    """Allow or forbid the fast path. Raises RuntimeError for what is no bool; torch stores anything."""
    flag_store.write("mha.fastpath_enabled", value)


install(__name__, "_MhaModule")

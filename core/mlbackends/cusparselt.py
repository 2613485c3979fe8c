"""cuSPARSELt: the version of the installed copy."""

from mlbackends.switches import availability
from mlbackends.switches.modules import install

__all__ = ["get_max_alg_id", "is_available", "version"]

#: The highest algorithm number, by version. Source: torch 2.13, torch/backends/cusparselt.
_MAX_ALG_ID = {400: 4, 502: 5, 602: 37}


def version() -> int | None:
    """Return the version that cuSPARSELt itself returns, such as 602 for 0.6.2; None without one."""
    parts = [int(part) for part in availability.version("cusparselt").split(".")[:3] if part.isdecimal()]
    return parts[0] * 10000 + parts[1] * 100 + parts[2] if len(parts) == 3 else None


def is_available() -> bool:
    """Return whether cuSPARSELt can be opened and reports a version, with or without a GPU."""
    return availability.opens("cusparselt")


def get_max_alg_id() -> int | None:
    """Return the highest algorithm number, None for an unknown version."""
    found = version()
    return None if found is None else _MAX_ALG_ID.get(found)


install(__name__, "_CusparseltModule")

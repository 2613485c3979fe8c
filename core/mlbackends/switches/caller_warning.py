"""Warnings that point at the line that called this library, however deep inside they are made."""

import sys


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest line outside of this package and of contextlib, which runs our scopes."""
    import warnings

    level = 1
    frame = sys._getframe(1)  # noqa: SLF001  what warnings itself counts by
    while frame.f_back is not None and _is_ours(str(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level + 1)


def _is_ours(module: str) -> bool:
    return module in ("mlbackends", "contextlib") or module.startswith("mlbackends.")

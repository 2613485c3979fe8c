"""The errors for names that nobody knows, with what was probably meant."""

from __future__ import annotations

from mlbackends.model.errors import UnknownName


def unknown(kind: str, name: object, known: tuple[str, ...]) -> Exception:
    """Return the error for a name of some kind: TypeError for what is no str, else UnknownName.

    The hint is a note as well: a traceback shows it, which knows nothing of hints.
    """
    if not isinstance(name, str):
        return TypeError(f"{kind} names must be str, got {type(name).__name__}")
    error = UnknownName(kind, name, known)
    error.add_note(error.hint)
    return error

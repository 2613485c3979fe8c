"""The exceptions of misuse. Absence is never one of them: it is a record.

Each carries the exit code that the command line ends with, and a hint.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlbackends.model.reasons import Reason


class MlBackendsError(Exception):
    """Something was asked wrongly, or could not be done.

    exit_code: what `backends` exits with. hint: what the reader can do, "" if there is nothing.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UnknownName(MlBackendsError, LookupError):
    """A name that is in no registry."""

    def __init__(self, kind: str, name: str, known: "tuple[str, ...]") -> None:
        near = nearest(name, known)
        if near:
            hint = f"did you mean {' or '.join(repr(each) for each in near)}?"
        else:
            hint = f"known: {', '.join(known)}"
        super().__init__(f"there is no {kind} named {name!r}", hint)
        self.name = name


class BadInput(MlBackendsError, ValueError):
    """A file, an option's value or a folder that cannot be read as what it should be."""


class InvalidProblem(MlBackendsError, ValueError):
    """An attention problem that has no answer: shapes, types or numbers that do not go together."""


class NoBackend(MlBackendsError, RuntimeError):
    """No attention backend can do it, or the one that was asked cannot; `reasons` has all of why."""

    exit_code = 1

    def __init__(self, message: str, reasons: "tuple[Reason, ...]" = (), hint: str = "") -> None:
        super().__init__(message, hint)
        self.reasons = reasons


class Incomplete(MlBackendsError):
    """The answer could not be told, and the caller asked for certainty (`--strict`)."""

    exit_code = 3


def nearest(name: str, known: "tuple[str, ...]") -> list[str]:
    """Return the known names that are most likely meant, [] if none is near.

    The same in another case, else those that go on where `name` ends, else the one spelled most alike.
    """
    import difflib

    lower = {each.lower(): each for each in known}
    if name.lower() in lower:
        return [lower[name.lower()]]
    longer = [each for each in known if each.startswith(f"{name.lower()}_")]
    if 0 < len(longer) <= 5:
        return longer
    return difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)

"""The exceptions of misuse. Absence is never one of them: it is a record.

Each carries the exit code that the command line ends with, and a hint.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlbackends.base.reasons import Reason


class MlBackendsError(Exception):
    """Something was asked wrongly, or could not be done.

    exit_code: what `backends` exits with. hint: what the reader can do, "" if there is nothing.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UnknownName(MlBackendsError, LookupError):
    """A name that is in no registry. listed_by: the command that lists them all, "" for none."""

    def __init__(self, kind: str, name: str, known: "tuple[str, ...]", listed_by: str = "") -> None:
        hint = did_you_mean(nearest(name, known))
        if not hint and known:
            hint = f"known: {some(known, listed_by)}"
            if listed_by and len(known) > _MOST_NAMES:
                hint = f"`{listed_by}` lists them all"
        super().__init__(f"there is no {kind} named {shown(name)}", hint)
        self.name = name


class GroupName(UnknownName):
    """The name of several switches together, where one is wanted."""

    def __init__(self, name: str, members: "tuple[str, ...]", listed_by: str) -> None:
        message = f"{name} is a group, not a switch: {some(members, listed_by)}"
        MlBackendsError.__init__(self, message, f"name one of them, such as {members[0]}")
        self.name = name


class NotALibrary(ValueError):
    """The file is not a library or program that could be read; the message is one sentence."""


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
    """A value could not be determined."""

    exit_code = 3


#: What msgspec says of JSON, and what we say.
_OF_JSON = {
    "JSON is malformed": "it is not JSON",
    "Input data was truncated": "it is empty or ends too early",
    "Object missing required field ": "it lacks the field ",
    "Object contains unknown field ": "it has the unknown field ",
}


def why_not(error: Exception) -> str:
    """Return why JSON could not be read, with its field: "probes: expected object, got int"."""
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    problem, _, place = str(error).replace("`", "").partition(" - at $")
    for words, ours in _OF_JSON.items():
        problem = problem.replace(words, ours)
    field = place.removeprefix(".")
    return f"{field}: {problem[:1].lower()}{problem[1:]}" if field else problem


#: The most names that are listed: nobody finds the right one in more.
_MOST_NAMES = 12
_LONGEST = 80
_PARTS = str.maketrans("._", "--")
#: No name that we know is near to a longer one, and comparing it would take long.
_LONGEST_NAME = 200


def some(names: "tuple[str, ...]", listed_by: str = "") -> str:
    """Return names with commas, of many the first ones and how many there are besides.

    listed_by: the command that lists the others, "" for none.
    """
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    rest = f"and {len(names) - _MOST_NAMES + 2} more"
    return f"{', '.join(names[: _MOST_NAMES - 2])} {rest}" + (f": `{listed_by}`" if listed_by else "")


def joined(names: "Sequence[str]") -> str:
    """Return names as a sentence has them: "numpy, scipy and torch"."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def counted(number: int, noun: str) -> str:
    """Return a number with what it counts: "1 thread", "2,000 threads"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown(value: object) -> str:
    """Return a value as Python writes it, in one line that is never long."""
    if isinstance(value, str):
        return repr(value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}...")
    try:
        text = repr(value)
    except ValueError:  # more digits than Python writes
        return "a number of thousands of digits"
    except RecursionError:
        return f"a {type(value).__name__} nested deeply"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def did_you_mean(near: "list[str]") -> str:
    """Return the question for names that are near, "" for none."""
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def suggestion(name: str, known: "tuple[str, ...]") -> str:
    """Return the end of a sentence about an unknown name: "; did you mean 'this'?", or ""."""
    near = nearest(name, known)
    return f"; did you mean {near[0]!r}?" if near else ""


def nearest(name: str, known: "tuple[str, ...]") -> list[str]:
    """Return the known names that are most likely meant, [] if none is near.

    The same in another case, else those that go on where `name` ends, else the one spelled most alike, where
    that is not only for its number (tf32 is not fp32) nor only for its end (lapack is not nnpack), else those
    of which a part, between ".", "_" and "-", begins with it.
    """
    import difflib

    if len(name) > _LONGEST_NAME:
        return []
    lower = {word.lower(): word for word in known}
    if name.lower() in lower:
        return [lower[name.lower()]]
    longer = [word for word in known if word.lower().startswith(f"{name.lower()}_")]
    if 0 < len(longer) <= 5:
        return longer
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    if close and close[0][:1] != name[0].lower() and close[0] not in name.lower():
        close = difflib.get_close_matches(name.lower(), close, cutoff=0.75)
    stem = name.lower().rstrip("0123456789")
    if close and stem and close[0].endswith(name.lower()[len(stem) :] or "?"):
        near = close[0].rstrip("0123456789")
        close = close if difflib.get_close_matches(stem, [near], cutoff=0.6) else []
    if not close and len(name) > 1:
        begin = f"-{name.lower().translate(_PARTS)}"
        parts = [word for word in lower if begin in f"-{word.translate(_PARTS)}"]
        close = parts if len(parts) <= 5 else []
    return [lower[word] for word in close]

"""The record of `backends conform`: whether installed libraries compute right numbers."""

from enum import StrEnum

from msgspec import Struct

SCHEMA = "backends.conform/1"


class Answer(StrEnum):
    """How a library answered a problem.

    wrong: farther from the exact result than the element type allows, or NaN or infinite where that is not.
    inexact: only small elements are. flushed: numbers below the smallest normal one are zero. refused: it
    does not support the problem. failed: its process ended or gave no answer in time.
    """

    RIGHT = "right"
    WRONG = "wrong"
    INEXACT = "inexact"
    FLUSHED = "flushed"
    REFUSED = "refused"
    FAILED = "failed"


class Conformity(Struct, frozen=True):
    """The answer to one problem.

    problem: the line that repeats it. units: the largest error, in units of what the element type allows; up
    to 8 is right. relative: the largest error divided by the largest exact number. message: one sentence, ""
    for a right answer. computed_as: the shorter element type whose error it has, "" for none, and hint: what
    avoids that. digest: of the bits of the result. repeats: whether a second call gave the same bits.
    """

    problem: str
    operation: str
    dtype: str
    answer: Answer
    units: float = 0.0
    relative: float = 0.0
    message: str = ""
    computed_as: str = ""
    hint: str = ""
    digest: str = ""
    repeats: bool = True

    @property
    def is_wrong(self) -> bool:
        """Whether it is wrong, or failed."""
        return self.answer in (Answer.WRONG, Answer.FAILED)


class LibraryConformity(Struct, frozen=True):
    """The answers of one library, with these variables. failure: why it could not be asked."""

    library: str
    version: str
    variables: dict[str, str]
    answers: tuple[Conformity, ...] = ()
    failure: str = ""


class Conformities(Struct, frozen=True):
    """A run. seed: what the problems were drawn with. python: the interpreter that was asked."""

    schema: str
    tool: str
    created: str
    processor: str
    python: str
    seed: int
    libraries: tuple[LibraryConformity, ...]

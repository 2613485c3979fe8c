"""What a launch reports, and the exceptions for wrong options.

The exceptions have the types of torch, and exit code 2. A value that cannot be read, or a node that does
not exist, is a `BadInput`, which is a ValueError.
"""

from mlbackends.base.errors import MlBackendsError

#: A level ("INFO", "WARNING" or "ERROR") and a sentence.
Notice = tuple[str, str]


def information(sentence: str) -> Notice:
    """Return a notice that needs no action."""
    return "INFO", sentence


def warning(sentence: str) -> Notice:
    """Return a notice that something requested is not done."""
    return "WARNING", sentence


class Refused(MlBackendsError, RuntimeError):
    """Options that contradict each other, or need more than this machine has."""


class UnknownCpu(MlBackendsError, KeyError):
    """A CPU that does not exist, is off, or that this process may not use."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError itself would put it in quotes


class TooFewCores(MlBackendsError, AssertionError):
    """An instance has fewer cores than torchrun has processes for it."""

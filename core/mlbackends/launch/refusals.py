"""What is raised where a launch is asked for wrongly: torch's exception types, and exit code 2.

A value that cannot be read, or a node that is not there, is a `BadInput`, which is a ValueError.
"""

from mlbackends.model.errors import MlBackendsError


class Refused(MlBackendsError, RuntimeError):
    """Options that contradict each other, or ask for more than there is."""


class UnknownCpu(MlBackendsError, KeyError):
    """A CPU that is not there, is off, or is not for this process."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError itself would put it in quotes


class TooFewCores(MlBackendsError, AssertionError):
    """An instance has fewer cores than torchrun's processes share it."""

"""The exceptions for wrong options; they have the types of torch, and exit code 2."""

from mlbackends.base.errors import MlBackendsError


class Refused(MlBackendsError, RuntimeError):
    """Options that contradict each other, or need more than this machine has."""


class UnknownCpu(MlBackendsError, KeyError):
    """A CPU that does not exist, is off, or that this process may not use."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError itself would put it in quotes


class TooFewCores(MlBackendsError, AssertionError):
    """An instance has fewer cores than torchrun has processes for it."""

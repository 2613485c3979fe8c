"""KleidiAI: Arm's kernels for processors."""

from mlbackends.switches.modules import install


def is_available() -> bool:
    """Return whether KleidiAI is here and answers; it exists on Arm processors alone."""
    from mlbackends.survey import availability

    return availability.is_available("kleidiai")


install(__name__, "_KleidiaiModule")

"""KleidiAI: Arm's kernels for processors."""

from mlbackends.flag_modules import install


def is_available() -> bool:
    """Tell whether KleidiAI is here and answers; it exists on Arm processors alone."""
    from mlbackends import answers

    return answers.is_available("kleidiai")


install(__name__, "_KleidiaiModule")

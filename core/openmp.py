"""OpenMP runtimes."""

from mlbackends.flag_modules import install


def is_available() -> bool:
    """Tell whether an OpenMP runtime is here that ran a parallel region."""
    from mlbackends import answers

    return answers.is_available("openmp")


install(__name__, "_OpenmpModule")

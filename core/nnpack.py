"""NNPACK: convolutions on processors, inside torch. Its switch has no attribute, in torch neither."""

from mlbackends.flag_modules import install

__all__ = ["flags", "is_available", "set_flags"]


def is_available() -> bool:
    """Tell whether an NNPACK is here that supports this processor, the one inside torch too."""
    from mlbackends import answers

    return answers.is_available("nnpack")


install(__name__, "_NnpackModule")

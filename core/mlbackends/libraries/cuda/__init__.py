"""NVIDIA's driver, runtime and libraries."""

from mlbackends.base.errors import BadInput
from mlbackends.base.quantities import dotted_numbers


def cudnn_number(release: str) -> int:
    """Return the number of a release of cuDNN, 92000 for 9.20 or 92000. Raises BadInput for what is none."""
    if not (numbers := dotted_numbers(release)):
        raise BadInput(f"{release!r} is not a version of cuDNN", "write it as 9.20 or 9.20.1")
    major, minor, patch = (*numbers, 0, 0)[:3]
    if major >= 1_000:
        return major
    return major * (10_000 if major >= 9 else 1_000) + minor * 100 + patch


def cudnn_release(number: int) -> str:
    """Return a number of cuDNN as people write it: 91900 is 9.19.0, and 8907, from before 9.0, is 8.9.7."""
    major = 10_000 if number >= 90_000 else 1_000
    return f"{number // major}.{number % major // 100}.{number % 100}"

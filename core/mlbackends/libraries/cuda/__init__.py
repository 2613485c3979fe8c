"""NVIDIA's driver, runtime and libraries."""


def cudnn_release(number: int) -> str:
    """Return a number of cuDNN as people write it: 91900 is 9.19.0, and 8907, from before 9.0, is 8.9.7."""
    major = 10_000 if number >= 90_000 else 1_000
    return f"{number // major}.{number % major // 100}.{number % 100}"
